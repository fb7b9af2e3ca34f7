import { ProblemError, UnreachableError } from "./errors.js";
import { asError, type Sender } from "./send.js";

/** The default timeout in milliseconds of all calls except checks. */
export const manageTimeout = 30_000;

/** The data of an answer with the headers that callers need. */
export interface Answer<T> {
  data: T;
  /** The version of the object, for `If-Match`. */
  etag: string | undefined;
  /** The ID of the call in the logs of the server. */
  requestId: string | undefined;
  /** The answer is that of an earlier call with the same `Idempotency-Key`. */
  replayed: boolean;
}

export interface CallOptions {
  signal?: AbortSignal;
  /** Default: 30000. */
  timeoutMs?: number;
}

export interface CreateOptions extends CallOptions {
  /** Repetitions with the same key create one object. Default: a random key. */
  idempotencyKey?: string;
}

interface ManagementCall {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  body?: unknown;
  bodyType?: string;
  ifMatch?: string | undefined;
  idempotent?: boolean;
}

/** Sends the management calls. The generated class has the calls. */
export class Caller {
  readonly #sender: Sender;

  constructor(sender: Sender) {
    this.#sender = sender;
  }

  protected async send<T>(call: ManagementCall, options: CreateOptions): Promise<Answer<T>> {
    const headers: Record<string, string> = {};
    if (call.bodyType) headers["Content-Type"] = call.bodyType;
    if (call.ifMatch) headers["If-Match"] = call.ifMatch;
    if (call.idempotent) headers["Idempotency-Key"] = options.idempotencyKey ?? crypto.randomUUID();
    const to = { method: call.method, path: call.path + query(call.query ?? {}), headers, ...(call.body === undefined ? {} : { body: JSON.stringify(call.body) }) };
    const reply = await this.#sender.send(to, options.timeoutMs ?? manageTimeout, options.signal);
    if (reply.status < 200 || reply.status > 299) throw asError(reply);
    const json = /\bjson\b/.test(reply.headers.get("Content-Type") ?? "");
    if (json && reply.json === undefined) throw new UnreachableError("protocol", new Error(`answer ${reply.status}: it is not JSON`));
    return {
      data: (json ? reply.json : reply.text === "" ? undefined : reply.text) as T,
      etag: reply.headers.get("ETag") ?? undefined,
      requestId: reply.headers.get("X-Request-Id") ?? undefined,
      replayed: reply.headers.get("Idempotent-Replayed") === "true",
    };
  }
}

/** One segment of a path. */
export function segment(value: string | number): string {
  const text = encodeURIComponent(value);
  if (text === "" || text === "." || text === "..") {
    throw new ProblemError({ status: 400, title: "Malformed", detail: `${JSON.stringify(value)} cannot be part of a path` });
  }
  return text;
}

/** The query of a call. An object has style deepObject: name[member]. */
function query(parameters: Record<string, unknown>): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value === undefined || value === null) continue;
    if (typeof value === "object") for (const [key, inner] of Object.entries(value)) parts.append(`${name}[${key}]`, String(inner));
    else parts.append(name, String(value));
  }
  const text = parts.toString();
  return text && `?${text}`;
}
