import type { Denial } from "./decision.js";

const rememberMax = 1000; // ms
const limit = 10_000; // denials of a client, so that many keys do not fill the memory

/** Remembers denied requests until their retry time, by the monotonic clock. */
export class Denials {
  readonly #known = new Map<string, { denial: Denial; at: number; until: number }>();

  get(body: string): Denial | undefined {
    const kept = this.#known.get(body);
    if (!kept) return undefined;
    const now = performance.now();
    if (now >= kept.until) {
      this.#known.delete(body);
      return undefined;
    }
    const left = Math.max(1, Math.ceil((kept.denial.retry_after_ms ?? 0) - (now - kept.at)));
    return { ...kept.denial, remembered: true, retry_after_ms: left, headers: { ...kept.denial.headers, "retry-after": String(Math.ceil(left / 1000)) } };
  }

  /**
   * Remembers a denial by a limit or a block. Other denials have no retry time. A denial by a
   * concurrency limit is not remembered, because any holder can release its places at any time.
   */
  put(body: string, denial: Denial): void {
    const after = denial.retry_after_ms;
    if (!after || (denial.reason !== "over_limit" && denial.reason !== "blocked")) return;
    if (denial.limits.some((limit) => limit.algorithm === "concurrency" && !limit.allowed)) return;
    const now = performance.now();
    if (this.#known.size >= limit) {
      for (const [key, kept] of this.#known) if (now >= kept.until) this.#known.delete(key);
      if (this.#known.size >= limit) return;
    }
    this.#known.set(body, { denial, at: now, until: now + Math.min(after, rememberMax) });
  }
}
