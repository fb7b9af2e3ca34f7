// Package redis is the enforcement.Limiter whose counters lie in Redis, shared
// by all nodes.
//
// A batch of requests comes in by [Limiter.Take], is grouped by home (a hash
// tag, so one script may touch all its keys, on a cluster too) and goes out as
// one script call a home. scripts/take.lua loads each counter once, decides the
// requests in order, stores what changed, and answers with the time and the
// counters as they were; this package then replays the decisions with the
// reference functions of enforcement, which fill the outcomes. Where the two
// disagree, the script is right about what was charged, and it is counted and
// logged.
//
// No request is charged twice. A script is sent again only when Redis said that
// it did nothing: it did not know the script, or the call came past its
// deadline, which each call carries in Redis' own time. So a call that hangs on
// the way and is delivered later does nothing.
//
// Keys are prefix, {home}, the tenant's and the cell's number as uvarints, and
// the partition's 16 bytes. Beside them stands only prefix + "format", which
// tells other versions of Headgate how these are made.
//
// A user of an ACL needs, on the keys below the prefix:
//
//	+evalsha +eval +time +mget +get +set +getrange +strlen +append +setrange +pexpire +del
//
// and may have +info and +config|get, by which the version is checked and the
// operator is warned when Redis may forget counters, and +scan for DeleteAll.
// With rediss:// or a cluster, what the client itself needs comes on top
// (+cluster, +hello, +select, +ping).
//
// The package does not know policies, tenants' plans or failure modes: it says
// whether a request was decided, and if not, whether it may have been charged.
package redis
