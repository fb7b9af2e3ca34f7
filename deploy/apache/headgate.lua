-- The hook check asks Headgate whether the request may pass. forward-auth.conf sets the address of
-- Headgate and an API key with the scope check. Each call blocks a thread of Apache, for at most
-- a second for each step of the connection.

local http, ltn12 = require "socket.http", require "ltn12"

http.TIMEOUT = 1

-- Headers of the client that Headgate receives, so that options can name them. Options of forward-auth are in
-- docs/gateways.md.
local passed = { "cookie", "x-user-id" }

-- Headers of Headgate's answer that the API receives. Those of the client are dropped.
local soft = { "X-RateLimit-Serve", "X-RateLimit-Delay-Ms" }

-- Headers of Headgate's answer that the client receives with a denial.
local denied = { "Retry-After", "WWW-Authenticate", "Cache-Control", "X-Request-Id" }

local function failed(r)
	if r.subprocess_env["headgate_failure"] == "closed" then
		return 503
	end
	return apache2.OK
end

function check(r)
	for _, name in ipairs(soft) do
		r.headers_in[name] = nil
	end
	local headers = {
		["host"] = "headgate",
		["authorization"] = "Bearer " .. r.subprocess_env["headgate_key"],
		["x-original-method"] = r.method,
		["x-original-uri"] = r.unparsed_uri,
		["x-original-host"] = r.hostname,
		["x-forwarded-for"] = r.useragent_ip,
	}
	for _, name in ipairs(passed) do
		headers[name] = r.headers_in[name]
	end
	local body = {}
	local ok, status, answer = http.request {
		url = r.subprocess_env["headgate_url"], headers = headers, sink = ltn12.sink.table(body), redirect = false,
	}
	if not ok then
		return failed(r)
	end
	for _, name in ipairs { "RateLimit", "RateLimit-Policy" } do
		r.err_headers_out[name] = answer[name:lower()]
	end
	if status == 200 then
		for _, name in ipairs(soft) do
			r.headers_in[name] = answer[name:lower()]
		end
		return apache2.OK
	end
	r.status = status
	r.content_type = answer["content-type"] or "text/plain"
	for _, name in ipairs(denied) do
		r.err_headers_out[name] = answer[name:lower()]
	end
	r:write(table.concat(body))
	return apache2.DONE
end
