-- The behavior that the plugins of Kong and Apache APISIX have in common, and a stub of the HTTP client that both use. The
-- test of a plugin gives stubs of its gateway.

local sent, answer, failure

-- The headers that the API receives, by their names in lower case.
local received

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

local M = { method = "POST", host = "acme.example.com", address = "203.0.113.9" }

-- The headers of a client that sends what the plugin sets.
M.client_headers = {
	["authorization"] = "Bearer of the client", ["x-user-id"] = "u1", ["x-forwarded-for"] = "198.51.100.1", ["x-forwarded-path"] = "/free",
	["x-forwarded-uri"] = "/free", ["x-forwarded-method"] = "GET", ["x-forwarded-host"] = "evil.example", ["idempotency-key"] = "k",
	["connection"] = "upgrade", ["upgrade"] = "websocket", ["content-length"] = "1048576", ["cookie"] = { "a=1", "b=2" },
}

-- set_header sets a header that the API receives, or removes it if the value is nil.
function M.set_header(name, value)
	received[name:lower()] = value
end

local function equal(what, got, want)
	assert(got == want, ("%s: %s, want %s"):format(what, tostring(got), tostring(want)))
end

-- test tests a plugin. option is the option headers of forward-auth. path_header and path are the header with the path of the
-- request, and its value. run runs the plugin with a configuration and returns the status and the body with which the plugin
-- answers, or nil if the request passes, the headers in the answer to the client, and what the plugin logged.
function M.test(option, path_header, path, run)
	local url = "http://127.0.0.1:8080/v1/forward-auth?headers=" .. option
	local conf = { url = "http://127.0.0.1:8080", key = "hg_tn_key", timeout = 500, fail_open = true }
	local function play()
		sent, received = nil, { ["x-ratelimit-serve"] = "forged", ["x-ratelimit-delay-ms"] = "60000" }
		return run(conf)
	end

	-- A request that passes: what the plugin sends, and the headers that it copies.
	answer = {
		status = 200, headers = { ["RateLimit"] = '"login";r=4;t=60', ["RateLimit-Policy"] = '"login";q=5;w=60', ["Content-Type"] = "application/json" },
	}
	local status, _, headers = play()
	equal("status", status, nil)
	equal("url", sent.url, url)
	equal("timeout", sent.timeout, 500)
	equal("method", sent.options.method, "GET")
	for name, want in pairs {
		["authorization"] = "Bearer hg_tn_key", ["x-forwarded-for"] = M.address, ["x-forwarded-host"] = M.host,
		["x-forwarded-method"] = M.method, [path_header] = path, ["x-user-id"] = "u1",
	} do
		equal(name, sent.options.headers[name], want)
	end
	for _, name in ipairs { "idempotency-key", "connection", "upgrade", "content-length" } do
		equal(name, sent.options.headers[name], nil)
	end
	equal("a repeated header", #sent.options.headers["cookie"], 2)
	equal("RateLimit", headers["RateLimit"], '"login";r=4;t=60')
	equal("RateLimit-Policy", headers["RateLimit-Policy"], '"login";q=5;w=60')
	equal("the type of Headgate's answer", headers["Content-Type"], nil)
	equal("X-RateLimit-Serve of the client", received["x-ratelimit-serve"], nil)
	equal("X-RateLimit-Delay-Ms of the client", received["x-ratelimit-delay-ms"], nil)

	-- The API receives how Headgate degrades and delays the request.
	answer.headers["X-RateLimit-Serve"], answer.headers["X-RateLimit-Delay-Ms"] = "cheap", "1500"
	play()
	equal("X-RateLimit-Serve", received["x-ratelimit-serve"], "cheap")
	equal("X-RateLimit-Delay-Ms", received["x-ratelimit-delay-ms"], "1500")

	-- Options come from the configuration.
	conf.options = "attributes=user:header:X-User-Id"
	play()
	equal("url", sent.url, url .. "&attributes=user:header:X-User-Id")

	-- A denial, and an error of Headgate: the client gets its answer.
	for _, code in ipairs { 429, 403, 401, 400, 503 } do
		answer = {
			status = code, body = "{}",
			headers = {
				["Content-Type"] = "application/problem+json", ["Retry-After"] = "7", ["RateLimit"] = "r", ["Set-Cookie"] = "x",
				["WWW-Authenticate"] = "Bearer", ["X-Request-Id"] = "id",
			},
		}
		local got, body, denied = play()
		equal("status", got, code)
		equal("body", body, "{}")
		equal("Retry-After", denied["Retry-After"], "7")
		equal("RateLimit", denied["RateLimit"], "r")
		equal("WWW-Authenticate", denied["WWW-Authenticate"], "Bearer")
		equal("X-Request-Id", denied["X-Request-Id"], "id")
		equal("Content-Type", denied["Content-Type"], "application/problem+json")
		equal("another header", denied["Set-Cookie"], nil)
	end

	-- Headgate is gone: open and closed.
	answer, failure = nil, "connection refused"
	local open, _, _, logged = play()
	equal("open", open, nil)
	equal("X-RateLimit-Serve of the client", received["x-ratelimit-serve"], nil)
	assert(logged:find("connection refused", 1, true))
	assert(not logged:find("hg_tn_key", 1, true))
	conf.fail_open = false
	equal("closed", play(), 503)
end

return M
