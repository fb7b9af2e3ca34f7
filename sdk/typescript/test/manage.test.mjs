// A tenant's life, on the real server of sdk/conformance.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Headgate, ProblemError } from "@headgate/sdk";

test("a tenant's life", async () => {
  const { manage } = new Headgate({ url: process.env.HEADGATE_URL, token: process.env.HEADGATE_TOKEN });
  const slug = `ts-${Math.random().toString(36).slice(2)}`;
  const made = await manage.createTenant({ slug, tenant: { name: "TypeScript é" } });
  assert.equal(made.data.slug, slug);
  assert.ok(made.etag && made.requestId);
  const changed = await manage.patchTenant(slug, { plan: "conformance" }, made.etag);
  assert.equal(changed.data.tenant.plan, "conformance");
  await assert.rejects(manage.patchTenant(slug, { plan: null }, made.etag), (error) => error instanceof ProblemError && error.status === 412 && error.requestId !== undefined);
  await assert.rejects(manage.getTenant("no/such?tenant"), (error) => error instanceof ProblemError && [400, 404].includes(error.status));
  await assert.rejects(manage.getTenant(".."), ProblemError);
  assert.ok((await manage.listTenants({ limit: 2, q: "TypeScript" })).data.data.length > 0);
  assert.equal((await manage.getUsage(slug, { policy: "login-per-user", key: { user: "u 1&" } })).data.policies.length, 1);
  const explained = await manage.explain({ tenant: slug, method: "POST", path: "/v1/login", attributes: { user: "u1" } });
  assert.equal(explained.data.decision.kind, "decision");
  assert.equal((await manage.deleteTenant(slug, changed.etag)).data, undefined);
});
