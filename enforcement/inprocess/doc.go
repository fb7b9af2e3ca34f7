// Package inprocess is the enforcement.Limiter of one process: the embedded
// default, the one that answers while Redis is away, and the simulation's.
//
// A request comes in at Limiter.Take. Its counters lie in shards, each a table
// of its own under a mutex; the distinct shards are locked in ascending order,
// the request is decided by the reference functions of package enforcement, and
// what changed is written back before the shards are unlocked. So all groups of
// a request are one atomic step, and no lock is everybody's.
//
//	limiter.go  Take: lock, settle, decide, write
//	table.go    a shard: cells without pointers, found by a seeded hash
//	logs.go     the entries of sliding logs, apart from the cells
//	sweep.go    Run: drops what is as new
//
// Memory is bounded by Config.MaxCells, and for each tenant by TenantCells. A
// counter is dropped only when it is as new: nobody can push out what he (or
// another) has used by flooding. A new key above a bound counts on the overflow
// counter of its tenant and limit, which all such keys share: it may refuse them
// early, it never admits too much.
//
// The package refuses to know Redis, other nodes and plans.
package inprocess
