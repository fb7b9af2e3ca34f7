// Package simulation plays limits on a clock of their own.
//
// A scenario, one line of JSON, comes in at Run (many, for `headgate simulate`)
// or RunOne (one, for POST /v1/simulate); a line with an answer to every step
// goes out. The decisions are those of a real Limiter, in process or on Redis,
// which Config.NewLimiter makes; only its clock is the scenario's. A line that
// cannot be played gives an error line that names the field.
//
//	scenario.go        what a line may say, read strictly
//	limit_counters.go  the limits in force, and what set_limits does to them
//	play.go            the steps, one after the other
//	answer.go          the line that comes out
//	run.go             lines in, lines out
//
// The package refuses to know HTTP, SQL, tenants and plans.
package simulation
