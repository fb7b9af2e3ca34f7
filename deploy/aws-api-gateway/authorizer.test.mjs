import assert from "node:assert/strict";
import { test } from "node:test";

import { attributesOf, handler } from "./authorizer.mjs";

const env = { HEADGATE_URL: "http://127.0.0.1:8080", HEADGATE_KEY: "hg_tn_key", HEADGATE_ATTRIBUTES: "user:header:X-User-Id,account:claim:https://example.com/account" };

const event = (changes = {}) => ({
  version: "2.0",
  rawPath: "/v1/login",
  headers: { "x-user-id": 'u1","cost":0,"mode":"peek', "x-forwarded-for": "198.51.100.1", cost: "0", mode: "peek", tenant: "other" },
  requestContext: {
    http: { method: "POST", path: "/v1/login", sourceIp: "203.0.113.9" },
    authorizer: { jwt: { claims: { "https://example.com/account": 7 } } },
  },
  ...changes,
});

// answering returns a fetch with an answer, and the request that it got.
function answering(status, body, headers = {}) {
  const got = {};
  return [got, async (url, options) => {
    Object.assign(got, { url, options });
    return new Response(JSON.stringify(body), { status, headers });
  }];
}

test("a request that passes", async () => {
  const [got, send] = answering(200, { allowed: true, reason: "ok", decision_id: "d1" }, { RateLimit: '"login";r=4;t=60', "X-RateLimit-Serve": "cheap", "X-RateLimit-Delay-Ms": "1500" });
  assert.deepEqual(await handler(event(), {}, env, send), {
    isAuthorized: true, context: { reason: "ok", decisionId: "d1", rateLimit: '"login";r=4;t=60', serve: "cheap", delayMs: "1500", retryAfter: "" },
  });
  assert.equal(got.url, "http://127.0.0.1:8080/v1/check");
  assert.equal(got.options.headers.authorization, "Bearer hg_tn_key");
  // A client sets attributes that the configuration names, and nothing else.
  assert.deepEqual(JSON.parse(got.options.body), {
    method: "POST", path: "/v1/login", attributes: { ip: "203.0.113.9", user: 'u1","cost":0,"mode":"peek', account: "7" },
  });
});

test("denials and errors of Headgate deny", async () => {
  for (const [status, body] of [[429, { allowed: false, reason: "over_limit" }], [403, { allowed: false, reason: "blocked" }], [401, { code: "unauthenticated" }],
    [400, {}], [503, { kind: "denial", allowed: false, reason: "limiter_unavailable" }], [200, { allowed: false }], [200, {}]]) {
    const [, send] = answering(status, body, { "Retry-After": "7" });
    const answer = await handler(event(), {}, env, send);
    assert.equal(answer.isAuthorized, false, `${status}`);
    assert.equal(answer.context.retryAfter, "7");
  }
});

test("Headgate is gone, slow, starts, or answers no JSON", async (t) => {
  const logged = t.mock.method(console, "error", () => {});
  for (const send of [
    async () => { throw new TypeError("fetch failed"); },
    (_url, { signal }) => new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
    async () => new Response("<html>", { status: 502 }),
    async () => new Response('{"title":"Unavailable","status":503}', { status: 503 }),
  ]) {
    const slow = { ...env, HEADGATE_TIMEOUT_MS: "10" };
    const waits = setTimeout(() => {}, 60_000); // a timeout signal does not keep Node.js running
    assert.equal((await handler(event(), {}, slow, send)).isAuthorized, true);
    assert.equal((await handler(event(), {}, { ...slow, HEADGATE_FAIL: "closed" }, send)).isAuthorized, false);
    clearTimeout(waits);
  }
  assert.ok(!JSON.stringify(logged.mock.calls.map((c) => c.arguments)).includes("hg_tn_key"));
});

test("attributes", () => {
  assert.deepEqual(attributesOf(event({ headers: undefined }), "user:header:x-user-id"), { ip: "203.0.113.9" });
  assert.throws(() => attributesOf(event(), "user:query:q"), /HEADGATE_ATTRIBUTES/);
});
