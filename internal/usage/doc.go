// Package usage reports how much quota a tenant and its keys have left now, and when it will be
// used up at the current pace. It charges nothing.
//
// Service.Tenant, Service.Policy and Service.Key return the usage. They take the tenant, its plan
// and its exceptions from the snapshot. They take the busiest keys and their pace from the recorded
// counts. They read the states of all counters with one call of the limiter. Service.Reset deletes
// the counters of one key.
//
//	usage.go               the types of the results
//	service.go             Service: the usage of a tenant, a policy or a key
//	pace_and_busy_keys.go  the busiest keys and the pace of the last minutes, from recorded counts
//	reset.go               resets one key
//
// The package must not depend on HTTP, SQL, or how limits are counted. The arithmetic of limits is
// in package enforcement.
package usage
