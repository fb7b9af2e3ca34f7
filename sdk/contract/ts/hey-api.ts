// Ten calls with hey-api.
import { client } from "./hey/client.gen.js";
import * as api from "./hey/sdk.gen.js";

client.setConfig({ baseUrl: process.env["HEADGATE_URL"]!, headers: { Authorization: `Bearer ${process.env["HEADGATE_TOKEN"]}` } });
const slug = `hey-${Math.random().toString(36).slice(2)}`;

function want(name: string, ok: boolean, got: unknown): void {
  if (!ok) throw new Error(`${name}: ${JSON.stringify(got)}`);
}

const check = await api.check({ body: { tenant: "conformance", method: "POST", path: "/v1/login", attributes: { user: slug } } });
want("check", check.data?.kind === "decision" && check.data.allowed, check);
const denied = await api.check({ body: { tenant: "conformance", method: "POST", path: "/v1/login", attributes: { user: slug }, cost: 9 } });
want("denied", denied.error?.kind === "denial" && denied.error.reason === "cost_exceeds_quota", denied);
const batch = await api.checkBatch({ body: { checks: [{ tenant: "conformance", method: "GET", path: "/v1/other" }] } });
want("batch", batch.data?.results[0]?.kind === "decision", batch);
const made = await api.createTenant({ body: { slug, tenant: { name: "Hey" } } });
want("create", made.data?.slug === slug, made);
const got = await api.getTenant({ path: { tenant: slug } });
want("get", got.data?.tenant.name === "Hey", got);
const etag = got.response?.headers.get("ETag") ?? "";
const put = await api.updateTenant({ path: { tenant: slug }, headers: { "If-Match": etag }, body: { name: "Hey", plan: "conformance" } });
want("put", put.data?.tenant.plan === "conformance", put);
const usage = await api.getUsage({ path: { tenant: slug }, query: { policy: "login-per-user", key: { user: "u1" } } });
want("usage", usage.data?.policies.length === 1, usage);
const list = await api.listTenants({ query: { limit: 1 } });
want("list", list.data?.data.length === 1 && list.data.has_more, list);
const key = await api.createKey({ path: { tenant: slug }, body: { name: "k", scopes: ["check"] } });
want("key", key.data !== undefined && key.data.token.startsWith("hg_"), key);
const missing = await api.getTenant({ path: { tenant: "nobody-has-this" } });
want("missing", missing.error?.kind === "problem" && missing.error.status === 404, missing);
console.log("hey-api: ten calls");
