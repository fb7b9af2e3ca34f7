-- A plugin for Kong that asks Headgate before Kong passes a request on. It was tested with stubs of
-- Kong's functions, and never ran in Kong.

local http = require "resty.http"

local Headgate = { PRIORITY = 910, VERSION = "0.1.0" } -- Kong's own rate limiting has 910, after authentication

local copied = { "RateLimit", "RateLimit-Policy" }

-- Headers of Headgate's answer that the API receives. Those of the client are dropped.
local soft = { "X-RateLimit-Serve", "X-RateLimit-Delay-Ms" }

-- Headers of the client that Headgate does not receive: those of the connection and the body, and those that the
-- plugin sets.
local withheld = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
	["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true, ["upgrade"] = true,
	["authorization"] = true, ["forwarded"] = true, ["idempotency-key"] = true, ["x-forwarded-for"] = true,
	["x-forwarded-host"] = true, ["x-forwarded-method"] = true, ["x-forwarded-path"] = true,
}

local function question(conf)
	local headers = {}
	for name, value in pairs(kong.request.get_headers(1000)) do
		if not withheld[name:lower()] then
			headers[name] = value
		end
	end
	headers["authorization"] = "Bearer " .. conf.key
	headers["x-forwarded-for"] = kong.client.get_forwarded_ip()
	headers["x-forwarded-host"] = kong.request.get_host()
	headers["x-forwarded-method"] = kong.request.get_method()
	headers["x-forwarded-path"] = kong.request.get_raw_path()
	return headers
end

function Headgate:access(conf)
	for _, name in ipairs(soft) do
		kong.service.request.clear_header(name)
	end
	local client = http.new()
	client:set_timeout(conf.timeout)
	local url = conf.url .. "/v1/forward-auth?headers=kong" .. (conf.options ~= nil and "&" .. conf.options or "")
	local answer, err = client:request_uri(url, { method = "GET", headers = question(conf), ssl_verify = true })
	if not answer then
		kong.log.err("Headgate does not answer: ", err)
		if conf.fail_open then
			return
		end
		return kong.response.exit(503, { message = "rate limits are unavailable" })
	end
	if answer.status == 200 then
		local limits = {}
		for _, name in ipairs(copied) do
			limits[name] = answer.headers[name]
		end
		kong.ctx.plugin.limits = limits
		for _, name in ipairs(soft) do
			if answer.headers[name] then
				kong.service.request.set_header(name, answer.headers[name])
			end
		end
		return
	end
	local headers = {}
	for _, name in ipairs { "Content-Type", "Retry-After", "RateLimit", "RateLimit-Policy", "WWW-Authenticate", "X-Request-Id" } do
		headers[name] = answer.headers[name]
	end
	return kong.response.exit(answer.status, answer.body, headers)
end

function Headgate:header_filter()
	for name, value in pairs(kong.ctx.plugin.limits or {}) do
		kong.response.set_header(name, value)
	end
end

return Headgate
