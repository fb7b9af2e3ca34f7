// Package demo fills a database with sample plans and tenants, a week of history
// and live traffic. The database is the demo's own.
//
//	service.go          what the database says about its demo
//	sample.go           the plans and the tenants, with their overrides, lists and blocks
//	synthetic_users.go  who sends which request when
//	fill.go             makes the demo, or adds the time since it stopped
//	history.go          the week before, decided by the real engine on a simulated clock
//	quota_carryover.go  charges what the history used of long windows to the live limiter
//	traffic.go          live traffic
//
// Everything goes through the services that people use, so it is validated and
// audited. The package must not depend on SQL, HTTP, and which limiter counts.
package demo
