// Ten calls with openapi-typescript and openapi-fetch.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: process.env["HEADGATE_URL"]!, headers: { Authorization: `Bearer ${process.env["HEADGATE_TOKEN"]}` } });
const slug = `fetch-${Math.random().toString(36).slice(2)}`;

function want(name: string, ok: boolean, got: unknown): void {
  if (!ok) throw new Error(`${name}: ${JSON.stringify(got)}`);
}

const check = await client.POST("/v1/check", { body: { tenant: "conformance", method: "POST", path: "/v1/login", attributes: { user: slug } } });
want("check", check.data?.kind === "decision" && check.data.allowed, check);
const denied = await client.POST("/v1/check", { body: { tenant: "conformance", method: "POST", path: "/v1/login", attributes: { user: slug }, cost: 9 } });
want("denied", denied.response.status === 429 && denied.error?.kind === "denial" && denied.error.reason === "cost_exceeds_quota", denied);
const batch = await client.POST("/v1/check/batch", { body: { checks: [{ tenant: "conformance", method: "GET", path: "/v1/other" }] } });
want("batch", batch.data?.results[0]?.kind === "decision", batch);
const made = await client.POST("/v1/tenants", { body: { slug, tenant: { name: "Fetch" } } });
want("create", made.data?.slug === slug, made);
const got = await client.GET("/v1/tenants/{tenant}", { params: { path: { tenant: slug } } });
want("get", got.data?.tenant.name === "Fetch", got);
const etag = got.response.headers.get("ETag") ?? "";
const put = await client.PUT("/v1/tenants/{tenant}", { params: { path: { tenant: slug }, header: { "If-Match": etag } }, body: { name: "Fetch", plan: "conformance" } });
want("put", put.data?.tenant.plan === "conformance", put);
const usage = await client.GET("/v1/tenants/{tenant}/usage", { params: { path: { tenant: slug }, query: { policy: "login-per-user", key: { user: "u1" } } } });
want("usage", usage.data?.policies.length === 1, usage);
const list = await client.GET("/v1/tenants", { params: { query: { limit: 1 } } });
want("list", list.data?.data.length === 1 && list.data.has_more, list);
const key = await client.POST("/v1/tenants/{tenant}/keys", { params: { path: { tenant: slug } }, body: { name: "k", scopes: ["check"] } });
want("key", key.data !== undefined && key.data.token.startsWith("hg_"), key);
const missing = await client.GET("/v1/tenants/{tenant}", { params: { path: { tenant: "nobody-has-this" } } });
want("missing", missing.error?.kind === "problem" && missing.error.status === 404, missing);
console.log("openapi-fetch: ten calls");
