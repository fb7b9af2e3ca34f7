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

/** Checks one request. It returns undefined for a request that passes unchecked. */
export async function guard<R>(options: GuardOptions<R>, request: R, method: string, path: string, signal?: AbortSignal): Promise<Decision | undefined> {
  if (options.skip?.(request)) return undefined;
  const check: CheckRequest = { method, path };
  const tenant = options.tenant?.(request);
  if (tenant !== undefined) check.tenant = tenant;
  if (options.attributes) check.attributes = options.attributes(request);
  if (options.cost) check.cost = options.cost(request);
  const decision = await options.client.check(check, signal ? { signal } : {});
  if (!options.shadow) return decision;
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
