-- The hook check asks Headgate whether the request may pass. forward-auth.conf sets the address of
-- Headgate and an API key with the scope check. Each call blocks a thread of Apache, for at most
-- a second for each step of the connection.

local http, ltn12 = require "socket.http", require "ltn12"

http.TIMEOUT = 1

-- Headers of the client that Headgate receives, so that options can name them. Options of forward-auth are in
-- docs/gateways.md.
local passed = { "cookie", "x-user-id" }

local function failed(r)
	if r.subprocess_env["headgate_failure"] == "closed" then
		return 503
	end
	return apache2.OK
end

function check(r)
	local headers = {
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
		return apache2.OK
	end
	r.status = status
	r.content_type = answer["content-type"] or "text/plain"
	r.err_headers_out["Retry-After"] = answer["retry-after"]
	r:write(table.concat(body))
	return apache2.DONE
end
