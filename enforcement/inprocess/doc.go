// Package inprocess implements an enforcement.Limiter that keeps its counters in this
// process. It is the embedded default. It also decides while Redis is unavailable, and
// in simulations.
//
// A request enters at Limiter.Take. The counters are in shards, each with a mutex. Take
// locks the shards of the request in ascending order, decides the request with the
// reference functions of package enforcement, stores the changed counters, and unlocks
// the shards. All groups of a request are therefore one atomic step, and no lock is
// shared by all requests. Take does not wait for a store, and no deadline fails it.
//
//	limiter.go              Take: locks the shards, decides, and stores the changed counters
//	apply_charges.go        charges, refunds and resets of one counter
//	counter_table.go        a shard: its lock, and cells without pointers, found by a seeded hash
//	log_entries.go          the entries of sliding logs, which are not in the cells
//	reservations.go         reservations
//	idempotency_records.go  records of idempotent checks
//	sweep_unused.go         Run: deletes counters that are as if unused
//	last_shared_states.go   the last known states of shared counters: enforcement.ShareMemory
//	restore_durable.go      sets durable counters to the states in the database
//
// Memory is bounded by Config.MaxCells, and for each tenant by TenantCells. A
// counter is deleted only when it is as if unused: its window has ended, its log is
// empty, or its bucket is full. Therefore a flood of new keys cannot evict used
// counters. A new key above a bound is counted on the overflow counter of its tenant and
// limit, which all such keys share. Such a key may be denied early. Together, these keys
// are never allowed more than the quota of one key.
//
// Config.SeenCells bounds the number of stored states of shared counters. Above it, the
// states of new keys are not stored, and this node's share of their quota starts full.
//
// The package does not depend on Redis, other nodes, or plans.
package inprocess
