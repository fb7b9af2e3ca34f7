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
	["x-forwarded-for"] = true, ["x-original-method"] = true, ["x-original-uri"] = true, ["x-original-host"] = true,
}

-- The most headers of a client that Headgate receives. The HTTP client of HAProxy 2.6 crashes with as many headers as
-- tune.http.maxhdr, which is 101. It sends up to eight besides these. Lower this number if you lower tune.http.maxhdr.
local most = 80

-- The headers of the call, or nil if the request has too many. HAProxy counts the values of a header from 0 in a
-- request, and from 1 in a call of its HTTP client.
local function question(txn)
	local headers, sent, n = {}, txn.http:req_get_headers(), 0
	for name, values in pairs(sent) do
		if not withheld[name] then
			headers[name] = {}
			for i = 0, #values do
				table.insert(headers[name], values[i])
				n = n + 1
			end
		end
	end
	if n > most then
		return nil
	end
	headers["authorization"] = { "Bearer " .. key }
	headers["x-original-method"] = { txn.f:method() }
	headers["x-original-uri"] = { txn.f:pathq() }
	headers["x-original-host"] = sent["host"] and { sent["host"][0] }
	headers["x-forwarded-for"] = { txn.f:src() }
	return headers
end

-- Headers of Headgate's answer that the API receives. Those of the client are dropped.
local passed = { "x-ratelimit-serve", "x-ratelimit-delay-ms" }

-- Headers of Headgate's answer that the client receives with a denial.
local denied = { "content-type", "retry-after", "ratelimit", "ratelimit-policy", "www-authenticate", "cache-control", "x-request-id" }

-- Variables for haproxy.cfg with headers of Headgate's answer, if it has them.
local variables = { ["ratelimit"] = "txn.headgate_ratelimit", ["ratelimit-policy"] = "txn.headgate_ratelimit_policy" }

local function first(headers, name)
	return headers and headers[name] and headers[name][0]
end

-- Answers a request whose headers cannot be sent to Headgate. If it passed, a client could bypass its limits with it.
local function refuse(txn, reason)
	local denial = txn:reply { status = 431, body = '{"type":"about:blank","title":"Request Header Fields Too Large","status":431,"detail":"' .. reason .. '"}' }
	denial:add_header("content-type", "application/problem+json")
	denial:add_header("cache-control", "no-store")
	txn:done(denial)
end

local function check(txn)
	for _, name in ipairs(passed) do
		txn.http:req_del_header(name)
	end
	local asked = question(txn)
	if not asked then
		return refuse(txn, "at most " .. most .. " header fields")
	end
	-- The call raises an error if HAProxy cannot send its headers. HAProxy would pass the request on after an error.
	local fits, answer = pcall(function() return core.httpclient():get { url = url, dst = socket, headers = asked } end)
	if not fits then
		return refuse(txn, "the header fields are too large")
	end
	local headers = answer.headers
	for name, variable in pairs(variables) do
		local value = first(headers, name)
		if value then -- HAProxy would set nil as 0
			txn:set_var(variable, value)
		end
	end
	if answer.status == 200 then
		for _, name in ipairs(passed) do
			local value = first(headers, name)
			if value then
				txn.http:req_set_header(name, value)
			end
		end
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
	for _, name in ipairs(denied) do
		local value = first(headers, name)
		if value then
			denial:add_header(name, value)
		end
	end
	txn:done(denial)
end

core.register_action("headgate", { "http-req" }, check)
