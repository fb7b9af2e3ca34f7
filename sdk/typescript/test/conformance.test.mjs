// The scenarios of sdk/conformance, which starts the servers and runs this test.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Headgate } from "@headgate/sdk";

const { scenarios } = JSON.parse(readFileSync(process.env.HEADGATE_SCENARIOS, "utf8"));

test("all scenarios are there", () => assert.ok(scenarios.length >= 40));
test("scenarios", { concurrency: 8 }, async (t) => {
  // All clients share the pool of fetch. Therefore what counts connections runs alone.
  for (const s of scenarios) if (s.expect_connections) await t.test(s.name, () => play(s));
  await Promise.all(scenarios.filter((s) => !s.expect_connections).map((s) => t.test(s.name, () => play(s))));
});

async function play(s) {
  const run = Math.random().toString(36).slice(2);
  const target = s.target ?? "headgate";
  const urls = { headgate: process.env.HEADGATE_URL, refused: process.env.HEADGATE_REFUSED_URL, faults: `${process.env.HEADGATE_FAULTS_URL}/${s.name}/${run}` };
  const tokens = { tenant: process.env.HEADGATE_KEY, wrong: "hg_op_wrong" };
  const given = s.client ?? {};
  let retries = 0;
  const client = new Headgate({
    url: urls[target],
    token: tokens[given.token] ?? process.env.HEADGATE_TOKEN,
    timeoutMs: given.timeout_ms === null ? undefined : (given.timeout_ms ?? 10_000),
    onUnreachable: given.on_unreachable === "callback" ? (request, error) => error instanceof Error && request.path === "/allow" : given.on_unreachable,
    maxRetries: given.max_retries,
    rememberDenials: given.remember_denials,
    hooks: { retrying: () => void retries++ },
  });
  const received = async () => (target === "faults" ? (await fetch(`${urls.faults}/calls`)).json() : []);
  const named = ({ idempotency_key: idempotencyKey, ...check }) => (idempotencyKey ? { ...check, idempotencyKey } : check);
  const filled = (value) => JSON.parse(JSON.stringify(value).replaceAll("$user", `u${run}`).replaceAll("$run", run));
  let held;
  for (const [i, step] of s.steps.entries()) {
    const at = `step ${i + 1}`;
    const abort = new AbortController();
    if (step.cancel_when_calls) {
      void (async () => {
        while ((await received()).length < step.cancel_when_calls);
        abort.abort();
      })();
    }
    const start = performance.now();
    let got;
    if (step.reserve) {
      const { ttl_ms: ttlMs, ...request } = filled(step.reserve);
      held = await client.reserve({ ...request, ttlMs }, { signal: abort.signal });
      got = { ...shown(held.decision), held: held.held };
    } else if (step.settle) got = await outcome(held.settle(step.settle));
    else if (step.extend) got = await outcome(held.extend(step.extend.ttl_ms));
    else if (step.release) got = await outcome(held.release());
    else if (step.check) {
      got = await client.check(named(filled(step.check)), { signal: abort.signal });
      while (step.until_calls && (await received()).length < step.until_calls && performance.now() - start < 60_000) got = await client.check(named(filled(step.check)));
      got = shown(got);
    } else {
      got = (await client.checkBatch(filled(step.batch).map(named), { atomic: step.atomic })).map(shown);
    }
    const elapsed = performance.now() - start;
    match(at, step.expect, got);
    assert.ok(elapsed >= (step.min_ms ?? 0) - 2 && elapsed <= (step.max_ms ?? Infinity), `${at} took ${elapsed} ms`);
  }
  if (s.expect_retries !== undefined) match("retries", s.expect_retries, retries);
  const calls = await received();
  if (s.expect_calls !== undefined) match("calls", s.expect_calls, calls.length);
  if (s.expect_connections !== undefined) match("connections", s.expect_connections, new Set(calls.map((call) => call.remote)).size);
  if (s.expect_bodies) assert.deepEqual(calls.map((call) => call.body), s.expect_bodies);
  if (s.expect_requests) assert.deepEqual(calls.map((call) => `${call.method} ${call.path}`), s.expect_requests);
  if (s.expect_headers) for (const call of calls) match("headers", s.expect_headers, call.headers);
}

/** A decision in the form of the file. */
function shown(decision) {
  return { ...decision, violated_policies: decision["violated-policies"], error: shownError(decision.error) };
}

/** An error in the form of the file. */
function shownError(error) {
  return error && { kind: error.kind, code: error.code, status: error.status, errors: error.errors, request_id: error.requestId };
}

/** What became of a change of a reservation. */
const outcome = (change) => change.then(() => ({ error: null }), (error) => ({ error: shownError(error) }));

/** Fails if got differs from want; scenarios.json has the rules. */
function match(at, want, got) {
  if (want === null) return assert.ok(got === null || got === undefined, `${at} is ${JSON.stringify(got)}, want none`);
  if (typeof want !== "object") return assert.equal(got, want, `${at} is ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  if ("$match" in want) return assert.match(String(got), new RegExp(want.$match), at);
  if ("$min" in want) return assert.ok(got >= want.$min && got <= want.$max, `${at} is ${got}, want ${want.$min} to ${want.$max}`);
  if (Array.isArray(want)) assert.equal(got?.length, want.length, at);
  for (const name of Object.keys(want)) match(`${at}.${name}`, want[name], got?.[name]);
}
