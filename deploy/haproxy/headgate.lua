-- The action lua.headgate asks Headgate whether the request may pass. haproxy.cfg sets the socket that leads
-- to Headgate and an API key with the scope check.

local socket, key = os.getenv("headgate_socket"), os.getenv("headgate_token")

-- Options of forward-auth are in docs/gateways.md.
local url = "http://headgate/v1/forward-auth?headers=original"

-- Headers of the client that Headgate does not receive: those of the connection and the body, and those that this
-- file sets.
local withheld = {
	["connection"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true, ["keep-alive"] = true,
	["proxy-connection"] = true, ["te"] = true, ["trailer"] = true, ["transfer-encoding"] = true,
	["upgrade"] = true, ["authorization"] = true, ["forwarded"] = true, ["idempotency-key"] = true,
	["x-forwarded-for"] = true, ["x-original-method"] = true, ["x-original-uri"] = true,
}

-- HAProxy counts the values of a header from 0 in a request, and from 1 in a call of its HTTP client.
local function question(txn)
	local headers = {}
	for name, values in pairs(txn.http:req_get_headers()) do
		if not withheld[name] then
			headers[name] = {}
			for i = 0, #values do
				table.insert(headers[name], values[i])
			end
		end
	end
	headers["authorization"] = { "Bearer " .. key }
	headers["x-original-method"] = { txn.f:method() }
	headers["x-original-uri"] = { txn.f:pathq() }
	headers["x-forwarded-for"] = { txn.f:src() }
	return headers
end

local function first(headers, name)
	return headers and headers[name] and headers[name][0]
end

local function check(txn)
	local answer = core.httpclient():get { url = url, dst = socket, headers = question(txn) }
	local headers = answer.headers
	txn:set_var("txn.headgate_ratelimit", first(headers, "ratelimit"))
	txn:set_var("txn.headgate_ratelimit_policy", first(headers, "ratelimit-policy"))
	if answer.status == 200 then
		return
	end
	-- HAProxy itself answers 502, 503 or 504 if it cannot reach Headgate. An answer of Headgate with such a status is
	-- a problem document, and denies the request, as every other answer does.
	local problem = first(headers, "content-type") == "application/problem+json"
	if not problem and (answer.status == 0 or answer.status >= 502 and answer.status <= 504) then
		txn:set_var("txn.headgate_failed", true)
		return
	end
	local denial = txn:reply { status = answer.status, body = answer.body }
	for _, name in ipairs { "content-type", "retry-after", "ratelimit", "ratelimit-policy" } do
		local value = first(headers, name)
		if value then
			denial:add_header(name, value)
		end
	end
	txn:done(denial)
end

core.register_action("headgate", { "http-req" }, check)
