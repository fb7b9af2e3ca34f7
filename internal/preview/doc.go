// Package preview estimates how many requests the draft of a plan would have denied, from the
// recorded counts of the plan's tenants.
//
// The counts are by minute: how often each policy applied, how many requests it denied, and its
// busiest keys. They do not contain single requests. Therefore each figure has a certainty:
//
//   - exact: the figure is a recorded count, for example that of an unchanged policy which no other change affects.
//
//   - estimated: the draft counts the same requests by the same keys with other limits, in windows of a minute or more.
//     The order within a minute is unknown, so the figure has bounds that hold for every order.
//
//   - needs shadow: the counts say nothing about the policy. Only publishing it in mode shadow shows what it would deny.
//
// The files are:
//
//	preview_result.go    the types of the result
//	service.go           reads the plan, its tenants and their counts
//	version_history.go   which counts of earlier versions are used
//	overridden_keys.go   which keys have an override, and what is known of their denials
//	policy_certainty.go  which policies overlap, and how certain a figure can be
//	denial_bounds.go     lower and upper bounds of the denials of limits, from counts by minute
//	replay.go            replays counted requests against the arithmetic of limits
//	trace_replay.go      reads traced requests, and compiles the plans that decide them again
//	trace_keys.go        when the state of the counters of a key is known
//	replay_one_side.go   decides traced requests again with the engine
//	trace_figures.go     what the decisions about traced requests say about figures
//	tenant_minutes.go    the counts of one tenant and its keys by minute
//	denial_figures.go    sums over tenants, routes and keys
//
// The package must not depend on HTTP and SQL. The arithmetic of limits is in enforcement.Meter.
package preview
