-- Tests of the plugin with stubs of Kong: lua5.3 headgate_test.lua

package.path = "../luatest/?.lua;" .. package.path
local forward_auth = require "forward_auth"

local exited, set, logged

_G.kong = {
	request = {
		get_headers = function() return forward_auth.client_headers end, get_host = function() return forward_auth.host end,
		get_method = function() return forward_auth.method end, get_raw_path = function() return "/v1/login" end,
	},
	service = { request = {
		clear_header = function(name) forward_auth.set_header(name, nil) end,
		set_header = function(name, value) forward_auth.set_header(name, assert(value)) end,
	} },
	client = { get_forwarded_ip = function() return forward_auth.address end },
	response = {
		exit = function(status, body, headers) exited = { status = status, body = body, headers = headers } return exited end,
		set_header = function(name, value) set[name] = value end,
	},
	log = { err = function(...) logged = table.concat({ ... }) end },
	ctx = { plugin = {} },
}

local plugin = require "handler"

forward_auth.test("kong", "x-forwarded-path", "/v1/login", function(conf)
	exited, set, logged, kong.ctx.plugin = nil, {}, nil, {}
	plugin:access(conf)
	plugin:header_filter(conf)
	if not exited then
		return nil, nil, set, logged
	end
	assert(next(set) == nil, "a denial has headers for the answer of the API")
	return exited.status, exited.body, exited.headers, logged
end)
