// Package redis is the enforcement.Limiter that stores its counters in Redis, so that all nodes share
// them.
//
// [Limiter.Take] passes the requests to a lane (call_queue.go), a queue for the next script call.
// Requests that wait at the same time share one call. A single server has one lane. A cluster has one
// lane for each home, which is a hash tag. The script reads each counter once, decides the requests
// in order, and writes the counters that changed. Its reply has the time and the counters as they
// were before. From these, this package decides the requests again, with the reference functions of
// enforcement, to compute the outcomes. If the two decisions differ, the script's decision is valid,
// because it is what was charged. Such a mismatch is counted and logged.
//
// scripts/take.lua can decide every request. Most calls use a smaller and faster script with the same
// decisions. scripts/single.lua decides one charge of one counter. scripts/batch.lua decides requests
// with mode enforce that charge no logs and have no shadow policies.
//
// Redis must answer a call within Config.Timeout. The timeout starts when the call is written to its
// connection (answer_timeout.go), so it excludes the time that a request waits in this process. A
// circuit breaker (circuit_breaker.go) stops calls while Redis does not answer. It reacts to calls
// that were written and not answered, and to probes on a separate connection.
//
// No request is charged twice. A call is sent again only if Redis replied that it did nothing: Redis
// did not know the script, or the call arrived after its deadline. Each call carries such a deadline,
// in the time of Redis. Therefore a call that is delayed on the network and arrives late does
// nothing.
//
// The key of a counter is the prefix, {home}, the numbers of the tenant and the cell as uvarints, and
// the 16 bytes of the partition, without separators. Other keys are:
//
//	prefix format                 version of the format of keys and values
//	prefix {home} m               marker of all nodes (loss_detection.go), to detect lost data
//	prefix {home} m node          marker of one node
//	prefix {home} tenant F        the tenant is full: it has as many keys as it may have (live_keys.go)
//	prefix {home} tenant cell N   number of keys of one limit of the tenant
//
// A tenant has at most Config.Keys live keys. Nodes count the keys in the background. The scripts
// check whether the tenant is full only when a request needs a key that does not exist.
//
// With an ACL, the Redis user needs these permissions for the keys with the prefix:
//
//	+evalsha +eval +time +mget +get +set +getrange +strlen +append +setrange +pexpire +del
//
// The permissions +info and +config|get are optional: they serve to check the version and to warn if
// Redis may evict counters. DeleteAll needs +scan. With rediss:// or a cluster, the client also needs
// +cluster, +hello, +select and +ping.
//
// The package does not depend on policies, plans or failure modes. An outcome reports whether a
// request was decided. If it was not, the outcome reports whether it may have been charged.
package redis
