// Package enforcement decides whether a request may pass now.
//
// A request enters at Engine.Decide, with the Subject of its tenant: the compiled
// plan and the exceptions. The engine checks the lists, finds the rules that match,
// computes their charges, and passes all charges to a Limiter in one step. The
// Limiter keeps the counters (State) in this process or in Redis, and decides. This
// package computes the remaining, reset and retry values from the states that the
// Limiter returns (algorithm.go), so both limiters return the same values.
//
//	engine.go               Engine: the steps of one decision
//	charges.go              which rules apply to a check, and their charges
//	decide_from_outcome.go  decisions from the outcomes of the limiter
//	fallback.go             decisions while the limiter is unavailable
//	local_share.go          this node's share of shared counters in that case
//	check.go                Check; normalize_path.go and ip.go: canonical paths and addresses
//	decision.go             Subject, Decision, Decider; reason.go: reasons and their sentences
//	explain.go              why each policy applies to a check or not
//	key_state.go            the current counters of keys
//	time_until_denial.go    when requests at a constant rate are denied
//	reset.go                deletes the counters of one key; display_key.go: keys for display
//	rule.go                 compiled policies; rule_index.go and path_pattern.go find those that match a check
//	exceptions.go           compiled exceptions of a tenant: list_entries.go, override.go, exception_groups.go
//	limiter.go              the interface Limiter; quota_lease.go: a Limiter that leases quota
//	limit.go                what a limit is, and the bounds within which its arithmetic is exact
//	counter_state.go        what a counter stores
//	algorithm.go            the algorithms as integer functions
//
// The package does not depend on HTTP, SQL, Redis, or the origin of plans. The
// clock of the system that stores a counter determines the time of its limits. The
// clock of the engine determines when list entries, blocks and overrides end, and the
// time in IDs. The engine sets no deadline: a Limiter bounds the time of its calls.
package enforcement
