import { guard, problemOf, type GuardOptions } from "./guard.js";
import type { Decision } from "./decision.js";

function denied(decision: Decision): Response {
  return new Response(JSON.stringify(problemOf(decision)), {
    status: decision.status,
    headers: { ...decision.headers, "content-type": "application/problem+json", "cache-control": "no-store" },
  });
}

const path = (request: Request) => new URL(request.url).pathname;

/** Wraps a handler of Fetch requests: Cloudflare Workers, Deno, Bun, service workers. */
export function withHeadgate<A extends unknown[]>(options: GuardOptions<Request>, handler: (request: Request, ...rest: A) => Response | Promise<Response>) {
  return async (request: Request, ...rest: A): Promise<Response> => {
    const decision = await guard(options, request, request.method, path(request), request.signal);
    if (decision && !decision.allowed) return denied(decision);
    const response = await handler(request, ...rest);
    if (!decision || Object.keys(decision.headers).length === 0) return response;
    const headers = new Headers(response.headers);
    for (const [name, value] of Object.entries(decision.headers)) headers.set(name, value);
    return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
  };
}

/** What the middleware uses of Hono's context. */
export interface HonoContext {
  req: { raw: Request; [other: string]: any };
  header(name: string, value: string): void;
  [other: string]: any;
}

/** Hono middleware: `app.use(headgate({ client }))`. */
export function headgate<C extends HonoContext = HonoContext>(options: GuardOptions<C>) {
  return async (context: C, next: () => Promise<void>): Promise<Response | void> => {
    const { raw } = context.req;
    const decision = await guard(options, context, raw.method, path(raw), raw.signal);
    if (decision && !decision.allowed) return denied(decision);
    for (const [name, value] of Object.entries(decision?.headers ?? {})) context.header(name, value);
    return next();
  };
}
