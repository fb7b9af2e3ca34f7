// Package enforcement answers one question: may this request pass now?
//
// A request comes in at Engine.Decide, with the Subject (tenant, compiled plan,
// and what was set for the tenant beside it) that the snapshot holds for the
// caller. The engine asks the lists, finds the rules that match, turns them into
// charges by the numbers in force, and hands those to a Limiter in one step. The
// Limiter, in process or on Redis, keeps counters (State) and decides; what a
// caller is told about them is computed here (algorithm.go) from the states
// that come back, so both limiters give the same answers to the last digit.
//
//	engine.go     the walk of one request
//	decision.go   the question and its answer
//	batch.go      requests that pass together or not at all
//	fallback.go   what answers when the limiter is away
//	rule.go       policies compiled; index.go finds those that match a check
//	exceptions.go overrides, lists and blocks of a tenant, compiled for its plan: list.go, override.go, group.go
//	explain.go    why each policy applies or not; explaining.go asks what its limits hold
//	because.go    the reason of a policy in a sentence
//	holding.go    what keys hold; exhaust.go: when that is used up at a pace
//	reset.go      forgetting what one key has used; key.go: keys as people see them
//	path.go       the one spelling of a path; pattern.go: the paths that a policy matches
//	limiter.go    the contract of a Limiter
//	limit.go      what a limit is and within which bounds its arithmetic is exact
//	state.go      what a counter holds
//	algorithm.go  the algorithms, as integer functions: the reference
//
// The package does not depend on HTTP, SQL, Redis, or the origin of plans. The
// system that holds the state holds the clock by which limits are decided. The
// engine's own clock decides when lists, blocks, and overrides end, and dates ids.
// The engine sets no deadline: a Limiter bounds its own calls.
package enforcement
