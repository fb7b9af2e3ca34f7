import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, before, test } from "node:test";
import express from "express";
import fastify from "fastify";
import { Hono } from "hono";
import { Headgate } from "@headgate/sdk";
import { headgate as forExpress } from "@headgate/sdk/express";
import { headgate as forFastify } from "@headgate/sdk/fastify";
import { headgate as forHono, withHeadgate } from "@headgate/sdk/fetch";

const limits = [];
const decision = { kind: "decision", allowed: true, decision_id: "d-1", tenant: "acme", mode: "enforce", reason: "ok", retry_after_ms: 0, delay_ms: 0, degraded: false, limits };
const denial = {
  ...decision, kind: "denial", allowed: false, status: 429, reason: "over_limit", retry_after_ms: 1340, plan: "pro",
  type: "https://iana.org/assignments/http-problem-types#quota-exceeded", title: "Quota exceeded", detail: "over the limit of policy p", "violated-policies": ["p"],
};
let server, url, last;
let served = 0;

// A server that stands for Headgate. It denies the path /denied.
before(async () => {
  server = createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    last = JSON.parse(Buffer.concat(parts));
    const denied = last.path === "/denied";
    const delay_ms = { "/waits": 3_600_000, "/waits-briefly": 1 }[last.path] ?? 0;
    response.writeHead(denied ? 429 : 200, { "RateLimit": '"p";r=0;t=2', "RateLimit-Policy": '"p";q=5', ...(denied ? { "Retry-After": "2" } : {}) });
    response.end(JSON.stringify(denied ? denial : { ...decision, delay_ms }));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  url = `http://127.0.0.1:${server.address().port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
});

const options = (more = {}) => ({
  client: new Headgate({ url, token: "hg_op_x", timeoutMs: 10_000 }),
  tenant: () => "acme",
  attributes: () => ({ user: "u1" }),
  cost: () => 3,
  skip: (request) => (request.originalUrl ?? request.url ?? request.req?.url).endsWith("/healthz"),
  ...more,
});

async function listening(handler, use) {
  const app = createServer(handler);
  await new Promise((done) => app.listen(0, "127.0.0.1", done));
  try {
    await use((path, signal) => fetch(`http://127.0.0.1:${app.address().port}${path}`, { signal }));
  } finally {
    app.closeAllConnections();
    app.close();
  }
}

const apps = {
  async express(more, use) {
    const app = express();
    app.use(forExpress(options(more)));
    app.use((_, response) => void (served++, response.send("served")));
    await listening(app, use);
  },
  async fastify(more, use) {
    const app = fastify();
    app.addHook("onRequest", forFastify(options(more)));
    app.get("/*", async () => (served++, "served"));
    await app.ready();
    await listening((request, response) => app.routing(request, response), use);
    await app.close();
  },
  async hono(more, use) {
    const app = new Hono();
    app.use(forHono(options(more)));
    app.get("*", (context) => (served++, context.text("served")));
    await use(async (path, signal) => app.request(`http://localhost${path}`, { signal }));
  },
  async fetch(more, use) {
    const handler = withHeadgate(options(more), () => (served++, new Response("served")));
    await use((path, signal) => handler(new Request(`http://localhost${path}`, { signal })));
  },
};

for (const [name, app] of Object.entries(apps)) {
  test(`${name}: allowed`, () =>
    app({}, async (get) => {
      const response = await get("/items/a%20b?q=1");
      assert.equal(response.status, 200);
      assert.equal(await response.text(), "served");
      assert.equal(response.headers.get("RateLimit"), '"p";r=0;t=2');
      assert.equal(response.headers.get("RateLimit-Policy"), '"p";q=5');
      assert.deepEqual(last, { tenant: "acme", method: "GET", path: "/items/a%20b", attributes: { user: "u1" }, cost: 3 });
    }));
  test(`${name}: denied`, () =>
    app({}, async (get) => {
      const response = await get("/denied");
      assert.equal(response.status, 429);
      assert.match(response.headers.get("Content-Type"), /^application\/problem\+json/);
      assert.equal(response.headers.get("Retry-After"), "2");
      assert.equal(response.headers.get("RateLimit"), '"p";r=0;t=2');
      assert.deepEqual(await response.json(), {
        type: denial.type, title: denial.title, status: 429, detail: denial.detail, "violated-policies": ["p"], decision_id: "d-1",
      });
    }));
  test(`${name}: shadow only logs`, async () => {
    const logged = [];
    await app({ shadow: true, log: (message) => logged.push(message) }, async (get) => {
      const response = await get("/denied");
      assert.equal(response.status, 200);
      assert.equal(await response.text(), "served");
      assert.equal(response.headers.get("Retry-After"), null);
      assert.equal(response.headers.get("RateLimit"), null);
    });
    assert.deepEqual(logged, ["headgate would deny GET /denied: over_limit"]);
  });
  test(`${name}: a request whose client leaves while it waits is not served`, async () => {
    served = 0;
    await app({}, async (get) => assert.equal((await get("/waits-briefly")).status, 200));
    assert.equal(served, 1);
    const leaving = new AbortController();
    const client = new Headgate({ url, token: "hg_op_x", timeoutMs: 10_000, hooks: { decided: () => setImmediate(() => leaving.abort()) } });
    await app({ client }, async (get) => {
      const response = await get("/waits", leaving.signal).catch(() => undefined);
      assert.ok(!response || response.status >= 500);
    });
    assert.equal(served, 1);
    await app({ shadow: true }, async (get) => assert.equal((await get("/waits")).status, 200));
    assert.equal(served, 2);
  });
  test(`${name}: skip`, async () => {
    last = undefined;
    await app({}, async (get) => assert.equal((await get("/healthz")).status, 200));
    assert.equal(last, undefined);
  });
}

test("options are validated", () => {
  for (const [pattern, bad] of [[/url/, { url: "ftp://x" }], [/token/, { token: "a b" }], [/timeoutMs/, { timeoutMs: -1 }], [/onUnreachable/, { onUnreachable: "ajar" }], [/maxRetries/, { maxRetries: 0.5 }]]) {
    assert.throws(() => new Headgate({ url, token: "x", ...bad }), pattern);
  }
});

test("throwErrors throws, and a hook or callback that throws fails no request", async () => {
  const refused = { url: "http://127.0.0.1:1", token: "x", maxRetries: 0, timeoutMs: 10_000 };
  await assert.rejects(new Headgate({ ...refused, throwErrors: true }).check({ path: "/x" }), { name: "UnreachableError", code: "connection" });
  const broken = () => {
    throw new Error("broken");
  };
  const client = new Headgate({ ...refused, onUnreachable: broken, hooks: { decided: broken, failed: broken, retrying: broken } });
  assert.equal((await client.check({ path: "/x" })).allowed, false);
});
