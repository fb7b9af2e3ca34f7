// Package preview tells what a plan's draft would do, before anybody publishes
// it: it replays the draft against what was counted of the plan's tenants.
//
// What was counted is minutes, not requests: how often each policy applied, what
// it refused, and its busiest keys. So a figure is one of three things, and says
// which. It is exact when no arithmetic is needed, as for a policy that is the
// same and that nothing beside it changes. It is estimated when the draft counts
// the same requests by the same keys with other numbers, in windows of a minute
// or more: then the order within a minute is not known, and beside the figure
// stand bounds that no order can leave. Otherwise it needs shadow: nothing that
// was counted can say, and publishing the policy in mode shadow will.
//
//	preview.go   what is asked and answered
//	service.go   reads the plan, its tenants and what they did
//	judge.go     which policies meet, and how certain a figure can be
//	bounds.go    how much limits can and must refuse of so many requests a minute
//	replay.go    the same requests through the limits' own arithmetic
//	tenant.go    one tenant: its keys' minutes, and what follows from them
//	figure.go    adds up tenants, routes and keys
//
// The package refuses to know HTTP and SQL, and how an algorithm counts:
// enforcement.Meter does.
package preview
