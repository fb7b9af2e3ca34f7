import { closing, guard, problemOf, type GuardOptions } from "./guard.js";

/** What the hook uses of a Fastify request. */
export interface FastifyRequest {
  method: string;
  url: string;
  [other: string]: any;
}

/** What the hook uses of a Fastify reply. */
export interface FastifyReply {
  headers(values: Record<string, string>): unknown;
  code(status: number): { send(body: string): unknown };
  [other: string]: any;
}

/** A Fastify hook: `app.addHook("onRequest", headgate({ client }))`. */
export function headgate<R extends FastifyRequest = FastifyRequest>(options: GuardOptions<R>) {
  return async (request: R, reply: FastifyReply): Promise<unknown> => {
    const decision = await guard(options, request, request.method, request.url.split("?", 1)[0] ?? "/", undefined, closing(reply["raw"]));
    if (!decision) return undefined;
    reply.headers(decision.headers);
    if (decision.allowed) return undefined;
    reply.headers({ "content-type": "application/problem+json", "cache-control": "no-store" });
    return reply.code(decision.status).send(JSON.stringify(problemOf(decision)));
  };
}
