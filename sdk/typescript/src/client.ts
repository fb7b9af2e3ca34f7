import { Denials } from "./denials.js";
import { type Decision, type DecidedDecision, type Denial, type Fallback } from "./decision.js";
import { type HeadgateError, ProblemError, UnreachableError } from "./errors.js";
import { Management, type CheckLease } from "./manage.gen.js";
import { Reservation, type ReservationRequest } from "./reservation.js";
import { asError, idempotencyKey, quietly, Sender, type Reply } from "./send.js";

/** A request to decide. */
export interface CheckRequest {
  /** ID or slug. An operator key must name it; a tenant key may leave it out. */
  tenant?: string;
  /** The method of the request, such as `GET`. */
  method?: string;
  /** The path of the request without its query. It begins with `/`. */
  path?: string;
  /** The values that policies count by, such as `ip` and `user`. */
  attributes?: Record<string, string>;
  /** The quota units. 0 charges nothing. Default: 1. */
  cost?: number;
  /** `peek` charges nothing; `force` charges even if nothing is left; `take_up_to` charges as much of the cost as is left. Default: `enforce`. */
  mode?: "enforce" | "peek" | "force" | "take_up_to";
  /**
   * Makes the check idempotent: 1 to 255 visible ASCII characters, such as the ID of the request
   * that you serve. A repetition within 10 minutes gets the first decision again and charges
   * nothing. The client therefore also retries if the connection breaks before the answer. In a
   * batch, only the key of the first request counts; it is that of the whole batch.
   */
  idempotencyKey?: string;
  /** Keeps what the check charges, so that `manage.refundCheck` can give it back. Not with `peek`, and not in an atomic batch. Default: false. */
  refundable?: boolean;
  /**
   * The lease that holds places of concurrency limits until `manage.releaseLease` or its end.
   * A check with the ID of a lease that has not ended renews it. Default: a lease with the ID of
   * the decision, for the window of each limit. The decision has the lease.
   */
  lease?: CheckLease;
}

/** How a request is decided if no usable answer comes from Headgate. */
export type OnUnreachable = "open" | "closed" | ((request: CheckRequest, error: HeadgateError) => boolean | Promise<boolean>);

/** Functions for logs and metrics. An error in them fails no request. */
export interface Hooks {
  /** Called after each check, and for each item of a batch. */
  decided?: (request: CheckRequest, decision: Decision, elapsedMs: number) => void;
  /** Called when a call has failed and is not retried. */
  failed?: (error: HeadgateError) => void;
  /** Called before each retry. */
  retrying?: (error: HeadgateError, waitMs: number) => void;
}

export interface ClientOptions {
  /** The address of Headgate, such as `http://127.0.0.1:8080`. */
  url: string;
  /** An operator key or a tenant key. */
  token: string;
  /** Bounds each check, its retries included. Default: 250. */
  timeoutMs?: number;
  /**
   * How a request is decided if no usable answer comes from Headgate. A request that Headgate
   * rejects with 4xx (except 401, 408 and 429) is denied even with `open`, so that a client cannot
   * choose contents that pass unchecked. Default: `open`.
   */
  onUnreachable?: OnUnreachable;
  /** Retries of a call that charged nothing: the connection failed, or 503 with Retry-After. Default: 2. */
  maxRetries?: number;
  /** Answers a repeated request with the remembered denial until its retry time, for at most 1 s. Default: false. */
  rememberDenials?: boolean;
  /** Throws the error instead of deciding without Headgate. Default: false. */
  throwErrors?: boolean;
  hooks?: Hooks;
  /** Default: the global fetch, with its pool of connections. */
  fetch?: typeof fetch;
}

export interface CheckOptions {
  /** Cancels the check. A canceled request is denied. */
  signal?: AbortSignal;
}

/** A client of Headgate. One for each process is enough. */
export class Headgate {
  /** The management calls. */
  readonly manage: Management;
  readonly #options: Required<Omit<ClientOptions, "fetch" | "url" | "token">>;
  readonly #sender: Sender;
  readonly #denials = new Denials();

  constructor(options: ClientOptions) {
    let protocol = "";
    try {
      protocol = new URL(options.url).protocol;
    } catch {
      // the next line reports it
    }
    if (protocol !== "http:" && protocol !== "https:") throw new TypeError(`headgate: url is ${JSON.stringify(options.url)}: it must be like https://headgate.example`);
    if (!/^[!-~]+$/.test(options.token ?? "")) throw new TypeError("headgate: token is empty or has characters that no key has");
    const { timeoutMs = 250, onUnreachable = "open", maxRetries = 2, rememberDenials = false, throwErrors = false, hooks = {} } = options;
    if (!(timeoutMs > 0)) throw new TypeError(`headgate: timeoutMs is ${timeoutMs}: it must be positive`);
    if (!Number.isInteger(maxRetries) || maxRetries < 0) throw new TypeError(`headgate: maxRetries is ${maxRetries}: it must be a number of retries`);
    if (typeof onUnreachable !== "function" && onUnreachable !== "open" && onUnreachable !== "closed") {
      throw new TypeError(`headgate: onUnreachable is ${JSON.stringify(onUnreachable)}: it must be "open", "closed" or a function`);
    }
    this.#options = { timeoutMs, onUnreachable, maxRetries, rememberDenials, throwErrors, hooks };
    this.#sender = new Sender({ url: options.url, token: options.token, maxRetries, fetch: options.fetch ?? globalThis.fetch.bind(globalThis), onRetry: hooks.retrying });
    this.manage = new Management(this.#sender);
  }

  /**
   * Decides a request and charges its cost. It always returns a decision: if Headgate does not
   * decide, the decision is a fallback with the error.
   */
  async check(request: CheckRequest, options: CheckOptions = {}): Promise<Decision> {
    const start = performance.now();
    const wire = wireRequest(request);
    const body = JSON.stringify(wire);
    const remembers = this.#options.rememberDenials && (request.mode ?? "enforce") === "enforce" && !request.idempotencyKey;
    const known = remembers ? this.#denials.get(body) : undefined;
    if (known) return this.#decided(request, known, start);
    let decision: Decision;
    try {
      const reply = await this.#sender.send({ method: "POST", path: "/v1/check", body, headers: headersFor(request) }, this.#options.timeoutMs, options.signal);
      decision = decode(reply.json, reply, rateLimitHeaders(reply.headers));
    } catch (error) {
      const cause = asHeadgateError(error);
      quietly(() => this.#options.hooks.failed?.(cause));
      decision = await this.#without(request, cause);
    }
    if (remembers && decision.kind === "denial") this.#denials.put(body, decision);
    return this.#decided(request, decision, start);
  }

  /**
   * Decides up to 1,000 requests in one call. It returns one decision for each request, in order.
   * With `atomic`, it charges all requests or none: they have one tenant, and are at most 100.
   */
  async checkBatch(requests: readonly CheckRequest[], options: CheckOptions & { atomic?: boolean } = {}): Promise<Decision[]> {
    if (requests.length === 0) return [];
    const start = performance.now();
    const body = JSON.stringify({ checks: requests.map(wireRequest), ...(options.atomic ? { atomic: true } : {}) });
    let reply: Reply;
    let results: unknown[];
    try {
      reply = await this.#sender.send({ method: "POST", path: "/v1/check/batch", body, headers: headersFor(requests[0]!) }, this.#options.timeoutMs, options.signal);
      if (reply.status !== 200) throw asError(reply);
      results = reply.json?.results;
      if (!Array.isArray(results) || results.length !== requests.length) throw new UnreachableError("protocol", new Error("the answer does not have one result for each check"));
    } catch (error) {
      const cause = asHeadgateError(error);
      quietly(() => this.#options.hooks.failed?.(cause));
      const fallbacks = [];
      for (const request of requests) fallbacks.push(this.#decided(request, await this.#without(request, cause), start));
      return fallbacks;
    }
    const decisions: Decision[] = [];
    for (const [i, request] of requests.entries()) {
      let decision: Decision;
      try {
        decision = decode(results[i], { ...reply, json: results[i] }, {});
      } catch (error) {
        const cause = asHeadgateError(error);
        quietly(() => this.#options.hooks.failed?.(cause));
        decision = await this.#without(request, cause);
      }
      decisions.push(this.#decided(request, decision, start));
    }
    return decisions;
  }

  /**
   * Decides a request like `check`, and keeps what it charged as a reservation. It always returns a
   * `Reservation`: if Headgate does not decide, its decision is a fallback.
   */
  async reserve(request: ReservationRequest, options: CheckOptions = {}): Promise<Reservation> {
    const start = performance.now();
    const { id = crypto.randomUUID(), ttlMs, ...check } = request;
    const body = JSON.stringify({ ...wireRequest(check), id, ttl_ms: ttlMs });
    let decision: Decision;
    let held: boolean;
    try {
      const reply = await this.#sender.send({ method: "POST", path: "/v1/reservations", body, idempotent: true }, this.#options.timeoutMs, options.signal);
      decision = decode(reply.json, reply, rateLimitHeaders(reply.headers));
      held = reply.json.reservation !== undefined;
    } catch (error) {
      const cause = asHeadgateError(error);
      quietly(() => this.#options.hooks.failed?.(cause));
      decision = await this.#without(check, cause);
      held = cause instanceof UnreachableError && cause.code !== "unavailable";
    }
    return new Reservation(this.#sender, check.tenant, id, this.#decided(check, decision, start), held);
  }

  #decided(request: CheckRequest, decision: Decision, start: number): Decision {
    quietly(() => this.#options.hooks.decided?.(request, decision, performance.now() - start));
    return decision;
  }

  /** Decides a request that Headgate did not decide. */
  async #without(request: CheckRequest, error: HeadgateError): Promise<Fallback> {
    if (this.#options.throwErrors) throw error;
    const rejected = error instanceof ProblemError && error.rejects;
    const { onUnreachable } = this.#options;
    let allowed = onUnreachable === "open" && !rejected;
    if (error instanceof UnreachableError && error.code === "canceled") allowed = false;
    else if (typeof onUnreachable === "function") {
      try {
        allowed = (await onUnreachable(request, error)) === true;
      } catch {
        allowed = false;
      }
    }
    if (allowed) return { kind: "fallback", allowed, status: 200, retry_after_ms: null, remembered: false, headers: {}, error };
    const status = rejected ? 403 : 503;
    return { kind: "fallback", allowed, status, retry_after_ms: null, remembered: false, headers: rejected ? {} : { "retry-after": "1" }, error };
  }
}

function headersFor(request: CheckRequest): Record<string, string> {
  return request.idempotencyKey ? { [idempotencyKey]: request.idempotencyKey } : {};
}

/** The request with its members that are set, in a fixed order. Equal requests give equal JSON. */
function wireRequest(request: CheckRequest): object {
  const wire: Record<string, unknown> = {};
  for (const name of ["tenant", "method", "path"] as const) if (request[name]) wire[name] = wellFormed(request[name]);
  const attributes = Object.entries(request.attributes ?? {}).filter(([, value]) => value !== undefined && value !== null);
  if (attributes.length > 0) {
    wire["attributes"] = Object.fromEntries(attributes.map(([name, value]) => [wellFormed(name), wellFormed(String(value))] as const).sort(([a], [b]) => (a < b ? -1 : 1)));
  }
  if (request.cost !== undefined) wire["cost"] = request.cost;
  if (request.mode) wire["mode"] = request.mode;
  if (request.refundable) wire["refundable"] = true;
  if (request.lease) {
    const { id, ttl_ms } = request.lease;
    wire["lease"] = { ...(id !== undefined && { id: wellFormed(id) }), ...(ttl_ms !== undefined && { ttl_ms }) };
  }
  return wire;
}

/** Replaces lone surrogates with U+FFFD. */
function wellFormed(text: string): string {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}

function asHeadgateError(error: unknown): HeadgateError {
  return error instanceof UnreachableError || error instanceof ProblemError ? error : new UnreachableError("protocol", error);
}

function rateLimitHeaders(headers: Headers): Record<string, string> {
  const found: Record<string, string> = {};
  headers.forEach((value, name) => {
    if (/^(x-)?ratelimit|^retry-after$/.test(name)) found[name] = value;
  });
  return found;
}

/** The decision of an answer. It throws the error for an answer without one. */
function decode(body: any, reply: Reply, headers: Record<string, string>): DecidedDecision | Denial {
  if (typeof body !== "object" || body === null || body.kind === "problem") throw asError(reply);
  if ((body.kind !== "decision" && body.kind !== "denial") || body.allowed !== (body.kind === "decision") || !Array.isArray(body.limits)) {
    throw new UnreachableError("protocol", new Error(`answer ${reply.status}: it has no decision`));
  }
  if (body.reason === "overloaded") throw new UnreachableError("unavailable", new Error(`${body.status} ${body.detail}`));
  return { ...body, status: body.allowed ? 200 : body.status, request_id: body.request_id ?? reply.headers.get("X-Request-Id") ?? undefined, remembered: false, headers };
}
