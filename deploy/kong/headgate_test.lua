-- Tests of the plugin with stubs: lua5.3 headgate_test.lua

local sent, answer, failure, exited, set, logged

package.preload["resty.http"] = function()
	return { new = function()
		return {
			set_timeout = function(_, ms) sent = { timeout = ms } end,
			request_uri = function(_, url, options)
				sent.url, sent.options = url, options
				return answer, failure
			end,
		}
	end }
end

local client_headers = {
	["authorization"] = "Bearer of the client", ["x-user-id"] = "u1", ["x-forwarded-for"] = "198.51.100.1", ["x-forwarded-path"] = "/free",
	["x-forwarded-method"] = "GET", ["x-forwarded-host"] = "evil.example", ["idempotency-key"] = "k", ["connection"] = "upgrade",
	["upgrade"] = "websocket", ["content-length"] = "1048576", ["cookie"] = { "a=1", "b=2" },
}
_G.kong = {
	request = {
		get_headers = function() return client_headers end, get_host = function() return "acme.example.com" end,
		get_method = function() return "POST" end, get_raw_path = function() return "/v1/login" end,
	},
	client = { get_forwarded_ip = function() return "203.0.113.9" end },
	response = {
		exit = function(status, body, headers) exited = { status = status, body = body, headers = headers } return exited end,
		set_header = function(name, value) set[name] = value end,
	},
	log = { err = function(...) logged = table.concat({ ... }) end },
	ctx = { plugin = {} },
}

local plugin = require "handler"

local function run(conf)
	sent, exited, set, logged, kong.ctx.plugin = nil, nil, {}, nil, {}
	plugin:access(conf)
	plugin:header_filter(conf)
end

local function equal(what, got, want)
	assert(got == want, ("%s: %s, want %s"):format(what, tostring(got), tostring(want)))
end

local conf = { url = "http://127.0.0.1:8080", key = "hg_tn_key", timeout = 500, fail_open = true }

-- A request that passes: what the plugin sends, and the headers that it copies.
answer = { status = 200, headers = { ["RateLimit"] = '"login";r=4;t=60', ["RateLimit-Policy"] = '"login";q=5;w=60' } }
run(conf)
equal("exit", exited, nil)
equal("url", sent.url, "http://127.0.0.1:8080/v1/forward-auth?headers=kong")
equal("timeout", sent.timeout, 500)
equal("method", sent.options.method, "GET")
for name, want in pairs {
	["authorization"] = "Bearer hg_tn_key", ["x-forwarded-for"] = "203.0.113.9", ["x-forwarded-host"] = "acme.example.com",
	["x-forwarded-method"] = "POST", ["x-forwarded-path"] = "/v1/login", ["x-user-id"] = "u1",
} do
	equal(name, sent.options.headers[name], want)
end
for _, name in ipairs { "idempotency-key", "connection", "upgrade", "content-length" } do
	equal(name, sent.options.headers[name], nil)
end
equal("a repeated header", #sent.options.headers["cookie"], 2)
equal("RateLimit", set["RateLimit"], '"login";r=4;t=60')
equal("RateLimit-Policy", set["RateLimit-Policy"], '"login";q=5;w=60')

-- Options come from the configuration.
conf.options = "attributes=user:header:X-User-Id"
run(conf)
equal("url", sent.url, "http://127.0.0.1:8080/v1/forward-auth?headers=kong&attributes=user:header:X-User-Id")

-- A denial, and an error of Headgate: the client gets its answer.
for _, status in ipairs { 429, 403, 401, 400, 503 } do
	answer = {
		status = status, body = "{}",
		headers = { ["Content-Type"] = "application/problem+json", ["Retry-After"] = "7", ["RateLimit"] = "r", ["Set-Cookie"] = "x" },
	}
	run(conf)
	equal("status", exited.status, status)
	equal("body", exited.body, "{}")
	equal("Retry-After", exited.headers["Retry-After"], "7")
	equal("Content-Type", exited.headers["Content-Type"], "application/problem+json")
	equal("another header", exited.headers["Set-Cookie"], nil)
	equal("a header of the answer of the API", next(set), nil)
end

-- Headgate is gone: open and closed.
answer, failure = nil, "connection refused"
run(conf)
equal("open", exited, nil)
assert(logged:find("connection refused", 1, true))
assert(not logged:find("hg_tn_key", 1, true))
conf.fail_open = false
run(conf)
equal("closed", exited.status, 503)
