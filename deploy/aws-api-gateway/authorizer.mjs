// A Lambda authorizer for HTTP APIs of AWS API Gateway (payload format 2.0, simple responses). It asks Headgate before
// the gateway passes a request on. It was tested with events like those of the gateway, and never ran in AWS.
//
// Environment: HEADGATE_URL, HEADGATE_KEY (an API key with the scope check), HEADGATE_TIMEOUT_MS (1000), HEADGATE_FAIL
// (open, or closed), and HEADGATE_ATTRIBUTES, such as user:header:x-user-id or user:claim:sub for a claim of the JWT
// authorizer.

const deny = (context) => ({ isAuthorized: false, context });
const allow = (context) => ({ isAuthorized: true, context });

// attributesOf returns the attributes that a list names. The gateway joins repeated headers with commas.
export function attributesOf(event, list) {
  const attributes = { ip: event.requestContext.http.sourceIp };
  for (const item of (list ?? "").split(",").filter(Boolean)) {
    const [name, kind, ...rest] = item.split(":");
    const from = rest.join(":");
    let value;
    if (kind === "header") {
      value = event.headers?.[from.toLowerCase()];
    } else if (kind === "claim") {
      value = event.requestContext.authorizer?.jwt?.claims?.[from];
    } else {
      throw new Error(`HEADGATE_ATTRIBUTES: ${item} must be name:header:Header or name:claim:Claim`);
    }
    if (value !== undefined && value !== "") {
      attributes[name] = String(value);
    }
  }
  return attributes;
}

export async function handler(event, _context, env = process.env, send = fetch) {
  const open = (env.HEADGATE_FAIL ?? "open") === "open";
  const { method } = event.requestContext.http;
  const body = { method, path: event.rawPath, attributes: attributesOf(event, env.HEADGATE_ATTRIBUTES) };
  let answer, decision;
  const failed = (why) => {
    console.error("Headgate does not decide:", why);
    return open ? allow({}) : deny({ reason: "unavailable" });
  };
  try {
    answer = await send(`${env.HEADGATE_URL}/v1/check`, {
      method: "POST",
      headers: { authorization: `Bearer ${env.HEADGATE_KEY}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(Number(env.HEADGATE_TIMEOUT_MS ?? 1000)),
    });
    decision = await answer.json();
  } catch (error) {
    return failed(error.name);
  }
  if (answer.status === 503 && decision.kind !== "denial") { // the node starts or is overloaded
    return failed(decision.title ?? 503);
  }
  const context = {
    reason: String(decision.reason ?? decision.code ?? answer.status),
    decisionId: String(decision.decision_id ?? ""),
    rateLimit: answer.headers.get("ratelimit") ?? "",
    serve: answer.headers.get("x-ratelimit-serve") ?? "",
    delayMs: answer.headers.get("x-ratelimit-delay-ms") ?? "",
    retryAfter: answer.headers.get("retry-after") ?? "",
  };
  return answer.status === 200 && decision.allowed === true ? allow(context) : deny(context);
}
