import { type HeadgateError, ProblemError, UnreachableError } from "./errors.js";

export const version = "0.1.0";

const retryBase = 20; // ms of the jittered wait before a retry
const retryMax = 1000;
const budgetMax = 10; // retries that can follow each other
const budgetCall = 0.1; // retries that each call adds: a tenth of the calls

export const idempotencyKey = "Idempotency-Key";

/** A call of the API. */
export interface Call {
  method: string;
  path: string;
  body?: string;
  headers?: Record<string, string>;
  /** The server acts only once on repetitions. A call with an `Idempotency-Key` is idempotent too. */
  idempotent?: boolean;
}

/** A response whose body is read. `json` is undefined if the body is not JSON. */
export interface Reply {
  status: number;
  headers: Headers;
  text: string;
  json: any;
}

export interface SenderOptions {
  url: string;
  token: string;
  maxRetries: number;
  fetch: typeof fetch;
  onRetry: ((error: HeadgateError, waitMs: number) => void) | undefined;
}

/** Sends calls, and repeats those that charged nothing, or that are idempotent. The pool of connections is that of fetch. */
export class Sender {
  readonly #base: string;
  readonly #headers: Record<string, string>;
  #budget = budgetMax;

  constructor(readonly options: SenderOptions) {
    this.#base = options.url.replace(/\/+$/, "");
    this.#headers = { Authorization: `Bearer ${options.token}`, "User-Agent": `headgate-typescript/${version}` };
  }

  async send(call: Call, timeoutMs: number, signal: AbortSignal | undefined): Promise<Reply> {
    const deadline = performance.now() + timeoutMs;
    const abort = new AbortController();
    const cancel = () => abort.abort(signal?.reason);
    const timer = setTimeout(() => abort.abort(new DOMException(`no answer within ${timeoutMs} ms`, "TimeoutError")), timeoutMs);
    if (signal?.aborted) cancel();
    signal?.addEventListener("abort", cancel, { once: true });
    try {
      return await this.#tries(call, deadline, abort.signal);
    } catch (error) {
      if (signal?.aborted) throw new UnreachableError("canceled", signal.reason);
      if (abort.signal.aborted) throw new UnreachableError("timeout", abort.signal.reason);
      throw error instanceof UnreachableError ? error : new UnreachableError("connection", error);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", cancel);
    }
  }

  async #tries(call: Call, deadline: number, signal: AbortSignal): Promise<Reply> {
    this.#budget = Math.min(budgetMax, this.#budget + budgetCall);
    for (let tries = 0; ; tries++) {
      const jitter = Math.random() * Math.min(retryMax, retryBase * 2 ** tries);
      let reply: Reply | undefined;
      let error: HeadgateError;
      let wait: number;
      try {
        reply = await this.#once(call, signal);
        const seconds = reply.headers.get("Retry-After") ?? "";
        // A 429 that is a problem limits calls of the API. A denial is the answer to a check.
        const later = reply.status === 503 || (reply.status === 429 && reply.json?.kind === "problem");
        if (!later || !/^\d{1,9}$/.test(seconds)) return reply;
        wait = Number(seconds) * 1000 + jitter;
        error = asError(reply);
      } catch (cause) {
        if (signal.aborted || !(neverConnected(cause) || call.idempotent || call.headers?.[idempotencyKey])) throw cause;
        wait = jitter;
        error = new UnreachableError("connection", cause);
      }
      if (tries >= this.options.maxRetries || performance.now() + wait >= deadline || this.#budget < 1) {
        if (reply) return reply;
        throw error;
      }
      this.#budget--;
      quietly(() => this.options.onRetry?.(error, wait));
      await sleep(wait, signal);
    }
  }

  async #once(call: Call, signal: AbortSignal): Promise<Reply> {
    const headers: Record<string, string> = { ...this.#headers };
    if (call.body !== undefined) headers["Content-Type"] = "application/json";
    const init: RequestInit = { method: call.method, headers: { ...headers, ...call.headers }, signal, redirect: "manual" };
    if (call.body !== undefined) init.body = call.body;
    const response = await this.options.fetch(this.#base + call.path, init);
    const text = await response.text();
    let json: any;
    try {
      json = JSON.parse(text);
    } catch {
      // asError reports it
    }
    return { status: response.status, headers: response.headers, text, json };
  }
}

/** The error for an answer that has no decision. */
export function asError(reply: Reply): HeadgateError {
  const problem = typeof reply.json === "object" && reply.json !== null ? reply.json : {};
  const status = typeof problem.status === "number" ? problem.status : reply.status;
  const full = { ...problem, status, request_id: problem.request_id ?? reply.headers.get("X-Request-Id") ?? undefined };
  if (status === 503) return new UnreachableError("unavailable", new ProblemError({ ...full, title: full.title ?? "Service Unavailable" }));
  if (typeof full.title !== "string") return new UnreachableError("protocol", new Error(`answer ${reply.status}: it is no problem document`));
  return new ProblemError(full);
}

/** Calls a hook. A hook that throws fails no request. */
export function quietly(hook: () => void): void {
  try {
    hook();
  } catch {
    // the hook's own error
  }
}

/** Whether no connection was made, so that the server received nothing. */
function neverConnected(error: unknown): boolean {
  const codes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "ConnectionRefused"];
  for (let e: any = error, depth = 0; e && depth < 5; e = e.cause, depth++) {
    if (codes.includes(e.code) || (Array.isArray(e.errors) && e.errors.length > 0 && e.errors.every((inner: any) => codes.includes(inner?.code)))) return true;
  }
  return false;
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}
