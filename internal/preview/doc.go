// Package preview estimates how many requests the draft of a plan would deny, from the recorded counts of the plan's
// tenants.
//
// The counts are per minute: how often each policy applied, what it denied, and its busiest keys. Therefore each
// figure has a certainty:
//
//   - exact: no arithmetic is needed, for example for an unchanged policy that no other change affects.
//
//   - estimated: the draft counts the same requests by the same keys with other numbers, in windows of a minute or more.
//     The order within a minute is unknown, so the figure has bounds that hold for every order.
//
//   - needs shadow: only publishing the policy in mode shadow shows what it would deny.
//
//     preview.go         the result
//     service.go         reads the plan, its tenants and their counts
//     certainty.go       which policies overlap, and how certain a figure can be
//     denial_bounds.go   the least and the most denials of limits, from counts by minute
//     replay.go          replays counted requests against the arithmetic of limits
//     tenant_minutes.go  the minutes of one tenant and its keys
//     denial_figures.go  sums over tenants, routes and keys
//
// The package must not depend on HTTP and SQL. The arithmetic of limits is in enforcement.Meter.
package preview
