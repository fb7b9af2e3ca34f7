// Package demo fills a database with something to look at: sample plans and
// tenants, a week of history and live traffic, all marked as a demonstration,
// and takes exactly that out again.
//
//	service.go  what there is of the demo, and removing it
//	sample.go   the plans, the tenants and what is set for them
//	world.go    synthetic users: who asks what, and when
//	fill.go     making it, and going on where it ended
//	history.go  the week before, decided by the real engine on a clock of its own
//	carry.go    what it used of long windows, brought to the live limiter
//	traffic.go  what goes on while the program runs
//
// Everything goes through the services that people use, so it is validated and
// audited as theirs is. The package refuses to know SQL, HTTP, and which limiter
// counts.
package demo
