import type { Decision } from "./decision.js";
import { closing, guard, problemOf, type GuardOptions } from "./guard.js";

/** What the middleware uses of an Express request. */
export interface ExpressRequest {
  method: string;
  originalUrl: string;
  [other: string]: any;
}

/** What the middleware uses of an Express response. */
export interface ExpressResponse {
  locals: Record<string, any>;
  setHeader(name: string, value: string): unknown;
  status(code: number): { end(body: string): unknown };
  [other: string]: any;
}

/** Express middleware. `response.locals.headgate` is the decision. */
export function headgate<R extends ExpressRequest = ExpressRequest>(options: GuardOptions<R>) {
  return (request: R, response: ExpressResponse, next: (error?: unknown) => void): void => {
    const path = request.originalUrl.split("?", 1)[0] ?? "/";
    guard(options, request, request.method, path, undefined, closing(response)).then((decision: Decision | undefined) => {
      for (const [name, value] of Object.entries(decision?.headers ?? {})) response.setHeader(name, value);
      response.locals["headgate"] = decision;
      if (!decision || decision.allowed) return next();
      response.setHeader("Content-Type", "application/problem+json");
      response.setHeader("Cache-Control", "no-store");
      response.status(decision.status).end(JSON.stringify(problemOf(decision)));
    }, next);
  };
}
