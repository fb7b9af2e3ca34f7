// Package preview estimates what a plan's draft would deny, from the counts of the
// plan's tenants.
//
// The counts are per minute: how often each policy applied, what it denied, and its
// busiest keys. So each figure has a certainty. It is exact if no arithmetic is
// needed, as for an unchanged policy that nothing beside it changes. It is estimated
// if the draft counts the same requests by the same keys with other numbers, in
// windows of a minute or more: the order within a minute is unknown, so the figure
// has bounds that hold for every order. Otherwise the policy needs shadow: only
// publishing it in mode shadow shows what it would deny.
//
//	preview.go        the result
//	service.go        reads the plan, its tenants and their counts
//	certainty.go      which policies overlap, and how certain a figure can be
//	denial_bounds.go  the least and the most that limits deny, from counts by minute
//	replay.go         the same requests through the limits' own arithmetic
//	tenant.go         one tenant: its keys by minute
//	figure.go         sums over tenants, routes and keys
//
// The package must not depend on HTTP and SQL. enforcement.Meter has the arithmetic.
package preview
