-- A plugin for Apache APISIX that asks Headgate before APISIX passes a request on. It was tested with
-- stubs of APISIX' functions, and never ran in APISIX.

local core = require "apisix.core"
local http = require "resty.http"

local schema = {
	type = "object",
	properties = {
		url = { type = "string", pattern = "^https?://[^?]+$" }, -- of Headgate, such as http://127.0.0.1:8080
		key = { type = "string", minLength = 1 }, -- API key with the scope check
		options = { type = "string" }, -- of forward-auth, such as attributes=user:header:X-User-Id
		timeout = { type = "integer", minimum = 1, maximum = 60000, default = 1000 }, -- milliseconds
		fail_open = { type = "boolean", default = true }, -- Headgate is gone or slow: requests pass
	},
	required = { "url", "key" },
	encrypt_fields = { "key" },
}

local _M = { version = 0.1, priority = 1001, name = "headgate", schema = schema } -- before limit-count, after authentication

function _M.check_schema(conf)
	return core.schema.check(schema, conf)
end

-- Headers of the client that Headgate does not receive: those of the connection and the body, and those that the
-- plugin sets.
local withheld = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
	["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
	["authorization"] = true, ["forwarded"] = true, ["idempotency-key"] = true, ["x-forwarded-for"] = true,
	["x-forwarded-host"] = true, ["x-forwarded-method"] = true, ["x-forwarded-uri"] = true,
}

-- Headers of Headgate's answer that the API receives. Those of the client are dropped.
local soft = { "X-RateLimit-Serve", "X-RateLimit-Delay-Ms" }

-- Headers of Headgate's answer that the client receives, if the request passes and if it does not.
local limits = { "RateLimit", "RateLimit-Policy" }
local denied = { "RateLimit", "RateLimit-Policy", "Retry-After", "Content-Type", "WWW-Authenticate", "X-Request-Id" }

local function question(conf, ctx)
	local headers = {}
	for name, value in pairs(core.request.headers(ctx)) do
		if not withheld[name:lower()] then
			headers[name] = value
		end
	end
	headers["authorization"] = "Bearer " .. conf.key
	headers["x-forwarded-for"] = core.request.get_remote_client_ip(ctx)
	headers["x-forwarded-host"] = core.request.get_host(ctx)
	headers["x-forwarded-method"] = core.request.get_method()
	headers["x-forwarded-uri"] = ctx.var.request_uri
	return headers
end

function _M.access(conf, ctx)
	for _, name in ipairs(soft) do
		core.request.set_header(ctx, name, nil)
	end
	local client = http.new()
	client:set_timeout(conf.timeout)
	local url = conf.url .. "/v1/forward-auth?headers=forwarded" .. (conf.options and "&" .. conf.options or "")
	local answer, err = client:request_uri(url, { method = "GET", headers = question(conf, ctx), ssl_verify = true })
	if not answer then
		core.log.error("Headgate does not answer: ", err)
		if conf.fail_open then
			return
		end
		return 503, { message = "rate limits are unavailable" }
	end
	local passes = answer.status == 200
	for _, name in ipairs(passes and limits or denied) do
		if answer.headers[name] then
			core.response.set_header(name, answer.headers[name])
		end
	end
	if not passes then
		return answer.status, answer.body
	end
	for _, name in ipairs(soft) do
		core.request.set_header(ctx, name, answer.headers[name])
	end
end

return _M
