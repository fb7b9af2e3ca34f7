package problem

// A Code distinguishes problems of the same type. The name of a code never changes, because
// SDKs compare it. The page of a type lists its codes, and the enum ProblemCode of openapi.yaml
// lists all codes.
type Code struct {
	// Name is the value of the member "code", for example "slug_taken".
	Name string
	// Type is the name of the type in Catalog.
	Type string
	// Meaning says in which case a problem has the code.
	Meaning string
}

// Codes has every code of the API, sorted by name.
var Codes = []Code{
	{"already_exists", "conflict", "An object with this id exists already."},
	{"check_refunded", "conflict", "The check was refunded before. The detail says when, and what was given back."},
	{"commit_unknown", "unavailable", "The connection to the database broke during the commit. " +
		"The change may have been made: read the object before you try again."},
	{"customer_key", "unauthenticated", "The request to /v1/forward-auth or Envoy's ext_authz has no key of a customer that a tenant has."},
	{"disabled", "conflict", "The account with this e-mail address is disabled."},
	{"email_taken", "conflict", "An account with this e-mail address exists already."},
	{"entry_exists", "conflict", "The value is on this list already."},
	{"idempotency_key_reused", "conflict", "The Idempotency-Key was sent with another body in the last 24 hours, or, for checks, " +
		"in the last 10 minutes."},
	{"invalid_jwt", "unauthenticated", "The JWT of the request to /v1/forward-auth cannot be read or verified."},
	{"invitation_exists", "conflict", "An invitation with this token exists already."},
	{"key_address", "forbidden", "The API key may not be used from the address of the request."},
	{"key_ended", "conflict", "The key is revoked or has expired. Create a new one."},
	{"key_exists", "conflict", "A key with this token exists already."},
	{"key_max_cost", "forbidden", "The cost of the check is above the bound of the API key."},
	{"key_peek_only", "forbidden", "The API key may only send checks with the mode peek."},
	{"key_revoked", "conflict", "The key is revoked. Create a new one."},
	{"key_rotated", "conflict", "The key was rotated already. Rotate its successor."},
	{"last_operator_key", "conflict", "This is the last operator key that may manage."},
	{"last_owner", "conflict", "This is the last owner who can sign in."},
	{"limiter_unavailable", "unavailable", "The counters cannot be read. Checks are decided by the failure modes of the policies."},
	{"no_second_factor", "conflict", "The account has no second factor."},
	{"overloaded", "overloaded", "The queue of this node has no room for the batch."},
	{"own_account", "forbidden", "A person cannot do this to their own account."},
	{"plan_in_use", "conflict", "The plan has tenants. Move them to another plan first."},
	{"refund_too_late", "conflict", "The windows and grants that the check charged have ended or were voided, " +
		"or its limits are no longer in the plan. The detail says which. Nothing was given back."},
	{"reservation_ended", "conflict", "The reservation has ended. The detail says how, and what is charged."},
	{"reservation_exists", "conflict", "The tenant has a reservation with this id, or made one with this Idempotency-Key, " +
		"from another request."},
	{"slug_taken", "conflict", "Another object has this slug."},
	{"too_many_blocks", "conflict", "The tenant has the maximum number of blocks."},
	{"too_many_channels", "conflict", "The owner has the maximum number of alert channels. Delete one first."},
	{"too_many_entries", "conflict", "The tenant has the maximum number of list entries."},
	{"too_many_grants", "conflict", "The tenant has the maximum number of grants, or the limit has it for this key. Void one first, " +
		"or wait until one ends."},
	{"too_many_idempotency_keys", "unavailable", "The tenant used more new Idempotency-Keys for checks in 10 minutes than " +
		"HEADGATE_MAX_IDEMPOTENCY_KEYS allows. The check was not decided and nothing was charged."},
	{"too_many_invitations", "conflict", "The maximum number of invitations is open."},
	{"too_many_mails", "conflict", "The address got, or the tenant sent, the maximum number of e-mailed links in the last hour. " +
		"Send the link yourself."},
	{"too_many_maintenance_windows", "conflict", "The owner has the maximum number of maintenance windows. Delete one first."},
	{"too_many_members", "conflict", "The tenant has the maximum number of people."},
	{"too_many_overrides", "conflict", "The tenant has the maximum number of overrides."},
	{"too_many_refundable_checks", "unavailable", "The tenant made more refundable checks in 10 minutes than " +
		"HEADGATE_MAX_IDEMPOTENCY_KEYS allows. The check was not decided and nothing was charged."},
	{"too_many_reservations", "unavailable", "The tenant has as many outstanding reservations as " +
		"HEADGATE_MAX_RESERVATIONS allows. Nothing was charged."},
	{"too_many_rules", "conflict", "The owner has the maximum number of alert rules. Delete one first."},
	{"too_many_shared_links", "conflict", "The owner has the maximum number of shared links. Revoke one first."},
	{"untrusted_proxy", "forbidden", "The request to /v1/forward-auth does not come from a trusted proxy."},
}

// PageCodes are codes that only pages of the dashboard use. The API does not return them.
var PageCodes = []string{
	"already_set_up", "code_used", "code_wrong", "confirm_first", "link_taken", "no_password", "oidc_refused",
	"passkey_exists", "passkey_wrong", "passkeys_unavailable", "second_factor_exists", "second_factor_required",
	"second_factor_unreadable", "session_exists", "sign_in_expired", "sign_in_failed", "too_many_saved_filters",
	"too_many_second_factors", "unknown_person",
}

// CodesOf returns the codes of the type with this name.
func CodesOf(name string) []Code {
	var out []Code
	for _, c := range Codes {
		if c.Type == name {
			out = append(out, c)
		}
	}
	return out
}
