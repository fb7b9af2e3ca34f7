export { Headgate, type CheckOptions, type CheckRequest, type ClientOptions, type Hooks, type OnUnreachable } from "./client.js";
export type { DecidedDecision, Decision, Denial, Fallback } from "./decision.js";
export { ProblemError, UnreachableError, type Fault, type HeadgateError, type UnreachableCode } from "./errors.js";
export type { Answer, CallOptions, CreateOptions } from "./call.js";
export { problemOf, type GuardOptions } from "./guard.js";
export { Reservation, type ReservationRequest, type Settlement } from "./reservation.js";
export { version } from "./send.js";
