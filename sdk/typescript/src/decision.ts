import type { HeadgateError } from "./errors.js";
import type { DecisionLease, LimitState, Reason } from "./manage.gen.js";

interface Base {
  /** The status for the answer to a denied request: 429, 403 or 503. 200 for an allowed request. */
  status: number;
  /** Milliseconds until the same request would pass. `null`: waiting does not help, or unknown. */
  retry_after_ms: number | null;
  /** The denial was remembered: no call was made. */
  remembered: boolean;
  /** The rate-limit headers for the answer: `ratelimit`, `ratelimit-policy`, `retry-after`, in lower case. */
  headers: Record<string, string>;
}

interface Decided extends Base {
  decision_id: string;
  tenant: string;
  plan?: string;
  plan_version?: number;
  mode: "enforce" | "peek" | "force" | "take_up_to" | (string & {});
  reason: Reason;
  /** How many milliseconds the caller waits before it serves the request, because of a `leaky_bucket` or a policy in mode `delay`. The middleware waits. */
  delay_ms: number;
  /** `cheap`: the request is over a limit of a policy in mode `degrade`, so serve an answer that costs less. Absent: the full answer. */
  serve?: "cheap" | (string & {});
  /** The shared limiter did not answer, and failure modes decided. */
  degraded: boolean;
  /** The first decision of the `idempotencyKey`; nothing was charged again. Absent otherwise. */
  replayed?: true;
  /** The units that were charged for a request with `take_up_to`. The `cost` of each limit is its part. Absent in other modes. */
  taken?: number;
  /** The time until which a check with `refundable` can be refunded, in RFC 3339. Absent: there is nothing to refund. */
  refundable_until?: string;
  /** The lease that holds the places of the request on concurrency limits. Absent: none. */
  lease?: DecisionLease;
  /** The largest `warn_at` threshold that an enforced limit has reached, in percent. Absent: none. */
  near_limit?: number;
  /** Every limit that applied. */
  limits: LimitState[];
  request_id?: string;
  error?: undefined;
}

/** Headgate allows the request. */
export interface DecidedDecision extends Decided {
  kind: "decision";
  allowed: true;
}

/** Headgate denies the request. */
export interface Denial extends Decided {
  kind: "denial";
  allowed: false;
  type: string;
  title: string;
  detail: string;
  "violated-policies"?: string[];
}

/** Headgate did not decide, because of `error`. */
export interface Fallback extends Base {
  kind: "fallback";
  allowed: boolean;
  error: HeadgateError;
}

/** Whether a request may pass, and why. `kind` says which members it has. */
export type Decision = DecidedDecision | Denial | Fallback;
