import { manageTimeout, segment, type CallOptions } from "./call.js";
import type { CheckRequest } from "./client.js";
import type { Decision } from "./decision.js";
import { ProblemError } from "./errors.js";
import { asError, type Sender } from "./send.js";

/**
 * A request whose real cost is known only later. `cost`, and the attributes that policies read
 * costs from, are estimates. The ID makes the call idempotent.
 */
export interface ReservationRequest extends Omit<CheckRequest, "idempotencyKey" | "refundable"> {
  /** An ID of your own, such as that of the job: 1 to 64 letters, digits, and `. _ ~ -`. Default: a random ID. */
  id?: string;
  /** The milliseconds after which the reservation ends by itself: 1,000 to 86,400,000. */
  ttlMs: number;
}

/** The real cost of a request. A policy for which it has no cost keeps its estimate. */
export interface Settlement {
  /** The cost for all policies without `cost_from`. */
  cost?: number;
  /** The costs for policies with `cost_from`, such as `{tokens: "1800"}`. */
  attributes?: Record<string, string>;
}

/**
 * The answer to `Headgate.reserve`. If `decision` allows the request, serve it, and call `settle`
 * or `release` afterwards.
 */
export class Reservation {
  readonly #sender: Sender;
  readonly #tenant: string | undefined;

  constructor(
    sender: Sender,
    tenant: string | undefined,
    readonly id: string,
    /** Whether the request may pass, and why. */
    readonly decision: Decision,
    /**
     * Whether the reservation exists. It is also true if the answer was lost, because the reservation
     * may exist then. It is false if the request was denied, or if it was allowed while the shared
     * limiter was unavailable. Then `settle`, `extend` and `release` make no call.
     */
    readonly held: boolean,
  ) {
    this.#sender = sender;
    this.#tenant = tenant;
  }

  /**
   * Ends the reservation with its real cost, in the windows that were charged. The call is repeated
   * if the answer is lost, because Headgate settles a reservation once. A `ProblemError` with the
   * status 409 says how the reservation has ended before.
   */
  settle(real: Settlement, options: CallOptions = {}): Promise<void> {
    return this.#change("POST", "/settle", real, options);
  }

  /** Makes the reservation end when `ttlMs` have passed from now on. */
  extend(ttlMs: number, options: CallOptions = {}): Promise<void> {
    return this.#change("POST", "/extend", { ttl_ms: ttlMs }, options);
  }

  /** Ends the reservation and gives its whole cost back. */
  release(options: CallOptions = {}): Promise<void> {
    return this.#change("DELETE", "", undefined, options);
  }

  async #change(method: string, action: string, body: object | undefined, options: CallOptions): Promise<void> {
    if (!this.held) return;
    const query = this.#tenant ? `?tenant=${encodeURIComponent(this.#tenant)}` : "";
    const call = { method, path: `/v1/reservations/${segment(this.id)}${action}${query}`, idempotent: true, ...(body && { body: JSON.stringify(body) }) };
    const reply = await this.#sender.send(call, options.timeoutMs ?? manageTimeout, options.signal);
    if (reply.status >= 200 && reply.status <= 299) return;
    const error = asError(reply);
    // 404: the request that would have made the reservation was lost, not its answer.
    if (this.decision.kind === "fallback" && error instanceof ProblemError && error.status === 404) return;
    throw error;
  }
}
