// Package demo fills a database with sample plans and tenants, a week of history and live traffic. The demo has its
// own database.
//
//	service.go          the record in the database about its demo
//	sample.go           the plans and the tenants, with their overrides, lists and blocks
//	synthetic_users.go  which synthetic user sends which request at which time
//	fill.go             creates the demo, or adds the counts of the time since it stopped
//	history.go          the past week, decided by the real engine on a simulated clock
//	quota_carryover.go  charges the usage of long windows in the history to the live limiter
//	traffic.go          live traffic
//
// The demo uses the same services as people do, so everything is validated and audited. The package must not depend
// on SQL, HTTP, or the kind of limiter.
package demo
