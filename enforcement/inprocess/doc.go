// Package inprocess is the enforcement.Limiter of one process: the embedded
// default, the one that answers while Redis is away, and the simulation's.
//
// A request comes in at Limiter.Take. Its counters lie in shards, each under a
// mutex; Take locks the distinct shards in ascending order, decides the request
// by the reference functions of package enforcement, writes what changed, and
// unlocks them. So all groups of a request are one atomic step, and no lock is
// shared by all requests. Take does not wait for a store, and no deadline fails it.
//
//	limiter.go  Take: lock, settle, decide, write
//	change.go   what a decided request does to a counter
//	table.go    a shard: its lock, and cells without pointers, found by a seeded hash
//	logs.go     the entries of sliding logs, apart from the cells
//	sweep.go    Run: drops what is as new
//	seen.go     what shared counters were last seen to hold: enforcement.ShareMemory
//
// Memory is bounded by Config.MaxCells, and for each tenant by TenantCells. A
// counter is dropped only when it is as new, so a flood of new keys cannot push out
// what a key has used. A new key above a bound counts on the overflow counter of
// its tenant and limit, which all such keys share: it may be denied early, and
// together they are never admitted more than one key's quota.
//
// States of shared counters have a bound of their own, Config.SeenCells. Above it
// new keys are not remembered, and their share starts full.
//
// The package does not depend on Redis, other nodes, or plans.
package inprocess
