-- Tests of the plugin with stubs of APISIX: lua5.3 headgate_test.lua

package.path = "../luatest/?.lua;" .. package.path
local forward_auth = require "forward_auth"

local set, logged

package.preload["apisix.core"] = function()
	return {
		request = {
			headers = function() return forward_auth.client_headers end, get_host = function() return forward_auth.host end,
			get_method = function() return forward_auth.method end, get_remote_client_ip = function() return forward_auth.address end,
			set_header = function(_, name, value) forward_auth.set_header(name, value) end,
		},
		response = { set_header = function(name, value) set[name] = value end },
		schema = { check = function(schema, conf)
			for _, name in ipairs(schema.required) do
				if conf[name] == nil then
					return false, name
				end
			end
			return true
		end },
		log = { error = function(...) logged = table.concat({ ... }) end },
	}
end

local plugin = require "headgate"
local ctx = { var = { request_uri = "/v1/login?next=%2F" } }

assert(plugin.check_schema { url = "http://127.0.0.1:8080", key = "k" })
assert(not plugin.check_schema { url = "http://127.0.0.1:8080" })

forward_auth.test("forwarded", "x-forwarded-uri", ctx.var.request_uri, function(conf)
	set, logged = {}, nil
	local status, body = plugin.access(conf, ctx)
	return status, body, set, logged
end)
