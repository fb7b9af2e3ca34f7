// Package demo fills a database with sample plans and tenants, a week of history and live traffic.
// The demo uses a separate database.
//
//	service.go                   the stored setting that marks a database as a demo
//	sample_plans_and_tenants.go  the plans and the tenants, with their overrides, lists and blocks
//	synthetic_users.go           which synthetic user sends which request at which time
//	fill_database.go             creates the demo, or adds the counts for the time in which it was stopped
//	history.go                   decides the requests of the past week with the real engine on a simulated clock
//	quota_carryover.go           charges the usage of long windows at the end of the history to the live limiter
//	traffic.go                   live traffic
//
// The demo calls the same services as the pages and the API, so that everything is validated and
// audited. The package must not depend on SQL, HTTP, or the kind of limiter.
package demo
