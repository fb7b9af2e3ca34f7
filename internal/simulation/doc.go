// Package simulation plays scenarios against limits, on a simulated clock.
//
// A scenario is one line of JSON with limits and steps. Run plays many scenarios, for "headgate
// simulate". RunOne plays one, for POST /v1/simulate. The output for a scenario is one line of JSON
// with the result of each step. A real Limiter, in this process or in Redis, decides the requests;
// Config.NewLimiter creates this Limiter. Only the clock of the Limiter is simulated. If a scenario
// cannot be played, the output is an error line that names the invalid field.
//
//	scenario.go                     reads and validates a scenario
//	limits_in_force.go              the limits in force, and how set_limits changes them
//	steps.go                        plays the steps in order
//	reservation_and_grant_steps.go  reservations, idempotent checks and grants, which an enforcement.Engine plays
//	result_line.go                  writes the line with the results
//	run_scenarios.go                Run and RunOne: lines in, lines out
//
// The package does not depend on HTTP, SQL, tenants or plans.
package simulation
