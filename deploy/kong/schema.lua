local typedefs = require "kong.db.schema.typedefs"

return {
	name = "headgate",
	fields = {
		{ consumer = typedefs.no_consumer },
		{ protocols = typedefs.protocols_http },
		{ config = {
			type = "record",
			fields = {
				{ url = typedefs.url { required = true } }, -- of Headgate, such as http://127.0.0.1:8080
				{ key = { type = "string", required = true, encrypted = true, referenceable = true } }, -- with the scope check
				{ options = { type = "string" } }, -- of forward-auth, such as attributes=user:header:X-User-Id
				{ timeout = { type = "number", default = 1000, between = { 1, 60000 } } }, -- milliseconds
				{ fail_open = { type = "boolean", default = true } }, -- Headgate is gone or slow: requests pass
			},
		} },
	},
}
