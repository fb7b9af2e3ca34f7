// Package usage reports what a tenant and its keys have left now, and when they use
// it up at the current pace. It charges nothing.
//
// A request enters at Service.Tenant, Service.Policy or Service.Key. The tenant, its
// plan and its exceptions come from the snapshot. The busiest keys and their pace
// come from the recorded counts. The states of the counters come from the limiter, in
// one call for all keys. Service.Reset deletes the counters of one key.
//
//	usage.go    the results
//	service.go  Service: the requests
//	pace_and_busy_keys.go  recorded counts: the busiest keys, and the pace of the last minutes
//	reset.go    resets one key
//
// The package does not depend on HTTP, SQL, or how limits are counted. The
// arithmetic of limits is in package enforcement.
package usage
