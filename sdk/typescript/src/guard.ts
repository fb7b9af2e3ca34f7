import type { CheckRequest, Headgate } from "./client.js";
import type { Decision } from "./decision.js";

/** The options of every middleware. R is the request of the framework. */
export interface GuardOptions<R> {
  client: Headgate;
  /** The tenant of a request. Default: the tenant of the client's key. */
  tenant?: (request: R) => string | undefined;
  /** The values that policies count by. Default: none. */
  attributes?: (request: R) => Record<string, string>;
  /** The quota units of a request. Default: 1. */
  cost?: (request: R) => number;
  /** Whether a request passes unchecked, such as a health check. Default: none passes. */
  skip?: (request: R) => boolean;
  /** Lets every request pass, and logs the denials. Requests are charged, and no header is set. Default: false. */
  shadow?: boolean;
  /** Receives the denials of `shadow`. Default: console.warn. */
  log?: (message: string, decision: Decision) => void;
}

/**
 * Waits for the `delay_ms` of an allowed request, as a `leaky_bucket` or a policy in mode `delay` says. It rejects with the
 * reason of the signal if that is aborted first.
 */
export function waitFor(decision: Decision, signal?: AbortSignal): Promise<void> {
  const delay = decision.kind === "decision" ? decision.delay_ms : 0;
  if (!(delay > 0)) return Promise.resolve();
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const done = () => (signal?.removeEventListener("abort", left), resolve());
    // A longer timer would fire at once.
    const timer = setTimeout(done, Math.min(delay, 2 ** 31 - 1));
    const left = () => (clearTimeout(timer), reject(signal?.reason));
    signal?.addEventListener("abort", left, { once: true });
  });
}

/** A signal that is aborted when the connection of a Node response closes. */
export function closing(response: any): AbortSignal | undefined {
  if (typeof response?.once !== "function") return undefined;
  const controller = new AbortController();
  response.once("close", () => controller.abort(new Error("the client has left")));
  return controller.signal;
}

/**
 * Checks one request, and waits for its delay. It returns undefined for a request that passes
 * unchecked. `signal` ends the check, and `left` only the wait.
 */
export async function guard<R>(options: GuardOptions<R>, request: R, method: string, path: string, signal?: AbortSignal, left = signal): Promise<Decision | undefined> {
  if (options.skip?.(request)) return undefined;
  const check: CheckRequest = { method, path };
  const tenant = options.tenant?.(request);
  if (tenant !== undefined) check.tenant = tenant;
  if (options.attributes) check.attributes = options.attributes(request);
  if (options.cost) check.cost = options.cost(request);
  const decision = await options.client.check(check, signal ? { signal } : {});
  if (!options.shadow) {
    await waitFor(decision, left);
    return decision;
  }
  if (!decision.allowed) {
    const why = decision.kind === "fallback" ? decision.error.message : decision.reason;
    (options.log ?? console.warn)(`headgate would deny ${method} ${path}: ${why}`, decision);
  }
  return { ...decision, headers: {}, allowed: true } as Decision;
}

/** The RFC 9457 problem for a denied request. It contains nothing about the tenant's plan. */
export function problemOf(decision: Decision): Record<string, unknown> {
  const titles: Record<number, string> = { 403: "Forbidden", 429: "Too Many Requests", 503: "Service Unavailable" };
  const problem: Record<string, unknown> = { type: "about:blank", title: titles[decision.status] ?? "Denied", status: decision.status };
  if (decision.kind !== "denial") return problem;
  const policies = decision["violated-policies"];
  if (decision.reason === "over_limit" && policies) Object.assign(problem, { type: decision.type, title: decision.title });
  if (decision.status === 429) problem["detail"] = decision.detail;
  if (policies) problem["violated-policies"] = policies;
  problem["decision_id"] = decision.decision_id;
  return problem;
}
