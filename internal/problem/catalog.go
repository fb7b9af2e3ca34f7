package problem

// A Type is a problem type of RFC 9457, which error responses contain. The page about the type is
// /docs/problems/{Name}. The package api takes titles and statuses from Catalog, and web shows the
// pages.
type Type struct {
	// Name is the last segment of the type's URI, like "missing-attribute".
	Name string
	// Status is the HTTP status of responses with this type.
	Status int
	// Title is a short summary of the type. It never changes.
	Title string
	// Meaning says when a response has this type. Remedy says what the caller can do.
	Meaning, Remedy string
}

// Catalog contains all problem types, in the order of their pages.
var Catalog = []Type{
	{
		"cost-exceeds-quota", 429, "Cost exceeds quota",
		"The request costs more than a limit can ever hold, or the limit's quota is 0. Waiting does not help, so there is no Retry-After.",
		"Ask for less at once, or have the plan's quota or burst raised.",
	},
	{
		"blocked", 429, "Blocked",
		"An operator has blocked this key of a policy until an instant. Requests of other keys pass as before.",
		"Try again after Retry-After. Operators: end the block under /v1/tenants/{tenant}/blocks.",
	},
	{
		"denied-by-list", 403, "Denied by list",
		"An attribute of the request has a value that is on the tenant's deny list, or an address in a network that is. Waiting does not help.",
		"Operators: /v1/explain names the entry; take it from the list under /v1/tenants/{tenant}/lists.",
	},
	{
		"missing-attribute", 403, "Missing attribute",
		"A policy counts by an attribute that the request did not carry, and its plan says that such requests are denied.",
		"Send the attribute that the detail names, with a value that is not empty.",
	},
	{
		"no-policy", 403, "No policy",
		"No policy of the tenant's plan matches the request, and the tenant denies what matches none.",
		"Add a policy for this method and path to the plan, or set the tenant's no_policy to allow.",
	},
	{
		"tenant-suspended", 403, "Tenant suspended",
		"The tenant is suspended; none of its requests pass.",
		"Set the tenant's status back to active.",
	},
	{
		"batch-refused", 429, "Batch refused",
		"This check would have passed, but it stands in an atomic batch in which another check was refused. Nothing of the batch was charged.",
		"Look at the other results of the batch; send the checks without atomic, or again after Retry-After.",
	},
	{
		"too-many-requests", 429, "Too many requests",
		"Headgate limits the requests to its own API, by key and by address. Checks are not limited in this way.",
		"Try again after Retry-After. Operators: HEADGATE_API_RATE and HEADGATE_API_RATE_PER_ADDRESS set the limits.",
	},
	{
		"limiter-unavailable", 503, "Limiter unavailable",
		"The counters could not be reached, and a policy that applies is set to refuse in that case (on_failure: closed).",
		"Try again after Retry-After. Operators: see which store is away under /readyz?verbose.",
	},
	{
		"overloaded", 503, "Overloaded",
		"More checks wait on this node than HEADGATE_MAX_WAITING allows, and the tenant of this check holds more than its share of the queue. " +
			"The check was not decided and nothing was charged.",
		"Try again after Retry-After, or at another node. Operators: headgate_overloaded_total counts these answers; add nodes or processors, " +
			"or slow down the tenant that the log names.",
	},
	{
		"malformed-request", 400, "Malformed request",
		"The request cannot be read: it is not one JSON value, or a member is unknown, duplicate, misspelt, null or of the wrong type, or a " +
			"parameter is unknown. Nothing was charged or changed.",
		"Correct the places that errors names.",
	},
	{
		"invalid-input", 422, "Invalid input",
		"The document can be read, and values in it are not allowed. Nothing was changed.",
		"Correct the places that errors names.",
	},
	{
		"unauthenticated", 401, "Unauthenticated",
		"There is no API key, or it is mistyped, unknown, expired or revoked.",
		"Send a valid key as: Authorization: Bearer hg_…",
	},
	{
		"forbidden", 403, "Forbidden",
		"The key is valid and may not do this: it lacks the scope that the detail names, or belongs to another tenant.",
		"Use a key with that scope.",
	},
	{
		"not-found", 404, "Not found",
		"There is nothing at this address, or nothing that the caller may know of.",
		"Check the address, id or slug.",
	},
	{
		"method-not-allowed", 405, "Method not allowed",
		"The address exists and does not answer to this method.",
		"Use one of the methods in the Allow header.",
	},
	{
		"conflict", 409, "Conflict",
		"The state of the object forbids it: a slug is taken, a plan still has tenants, or the last operator key would be lost.",
		"The detail says what stands in the way.",
	},
	{
		"precondition-failed", 412, "Precondition failed",
		"Somebody else changed the object since it was read. Nothing was changed.",
		"Read it again, apply the change to what is there now, and send its new ETag as If-Match.",
	},
	{
		"request-too-large", 413, "Request too large",
		"The body is too large. The bound is 64 KiB; for batches and plan documents it is 1 MiB.",
		"Send less in one request.",
	},
	{
		"unsupported-media-type", 415, "Unsupported media type",
		"The body is not application/json, or it is compressed.",
		"Send plain JSON with Content-Type: application/json.",
	},
	{
		"precondition-required", 428, "Precondition required",
		"This write must say which revision it changes.",
		"Read the object and send its ETag as If-Match.",
	},
	{
		"internal-error", 500, "Internal error",
		"Something went wrong inside Headgate; the cause is in its log under the request id.",
		"Try again; tell the operator the request id if it stays.",
	},
	{
		"unavailable", 503, "Unavailable",
		"The database is away or the node is starting or stopping. Checks go on from the last snapshot.",
		"Try again after a moment.",
	},
}

// TypeByName returns the type with this name from the catalog. It returns false if there is
// none.
func TypeByName(name string) (Type, bool) {
	for _, t := range Catalog {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}
