/** Why no usable answer came. */
export type UnreachableCode =
  | "timeout" // no answer within the deadline
  | "connection" // the connection failed
  | "canceled" // the caller canceled
  | "unavailable" // 503: nothing was decided or charged
  | "protocol"; // the answer is not one of Headgate

/** No usable answer came. `cause` has the details. */
export class UnreachableError extends Error {
  readonly kind = "unreachable";

  constructor(
    readonly code: UnreachableCode,
    cause: unknown,
  ) {
    super(`headgate: no decision (${code}): ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    this.name = "UnreachableError";
  }
}

/** One invalid member, parameter or header of a request. */
export interface Fault {
  pointer: string;
  detail: string;
}

/** An RFC 9457 problem that Headgate answered. */
export class ProblemError extends Error {
  readonly kind = "problem";
  readonly status: number;
  readonly type: string;
  readonly title: string;
  readonly detail: string | undefined;
  /** Distinguishes problems of one type. */
  readonly code: string | undefined;
  readonly requestId: string | undefined;
  readonly errors: readonly Fault[];

  constructor(problem: { status: number; type?: string; title: string; detail?: string; code?: string; request_id?: string; errors?: Fault[] }) {
    const faults = (problem.errors ?? []).map((fault) => `; ${fault.pointer}: ${fault.detail}`).join("");
    const request = problem.request_id ? ` (request ${problem.request_id})` : "";
    super(`headgate: ${problem.status} ${problem.title}${problem.detail ? `: ${problem.detail}` : ""}${faults}${request}`);
    this.name = "ProblemError";
    this.status = problem.status;
    this.type = problem.type ?? "about:blank";
    this.title = problem.title;
    this.detail = problem.detail;
    this.code = problem.code;
    this.requestId = problem.request_id;
    this.errors = problem.errors ?? [];
  }

  /**
   * Whether the contents of the request caused the problem. `onUnreachable` does not allow such a
   * request, because its sender could have chosen the contents.
   */
  get rejects(): boolean {
    return this.status >= 400 && this.status < 500 && ![401, 408, 429].includes(this.status);
  }
}

export type HeadgateError = UnreachableError | ProblemError;
