// Package redis is the enforcement.Limiter whose counters lie in Redis, shared
// by all nodes.
//
// Requests come in by [Limiter.Take]. A lane (lane.go) gathers those that wait at
// the same time into one script call: one lane for a single server, one for each
// home (a hash tag) on a cluster. The script loads each counter once, decides the
// requests in order, stores what changed, and returns the time and the counters
// as they were. This package replays the decisions with the reference functions
// of enforcement, which fill the outcomes. If the two disagree, the script's
// verdict counts, because it is what was charged; the mismatch is counted and
// logged.
//
// scripts/take.lua decides every request. Most calls use smaller scripts, which
// decide the same at a lower cost: scripts/single.lua one charge of one counter,
// and scripts/batch.lua requests of mode enforce without logs and shadow
// policies.
//
// Redis has Config.Timeout to answer a call, from when the call is written to its
// connection (answer_timeout.go). Time that a request waits in this process is not part of
// it. Calls that were written and not answered, and probes on a connection of
// their own, feed the breaker (health.go).
//
// No request is charged twice. A script is sent again only when Redis said that
// it did nothing: it did not know the script, or the call arrived past its fence,
// a deadline in Redis' own time that each call carries. So a call that hangs on
// the way and is delivered later does nothing.
//
// Keys are prefix, {home}, the tenant's and the cell's number as uvarints, and
// the partition's 16 bytes. Beside them stand prefix + "format", which tells other
// versions of Headgate how these are made; the markers of pulse.go, {home}m and
// {home}m with the node's ID; and for tenants with many keys those of live.go: the
// tenant's number and F, and the numbers of the tenant and the cell and N.
//
// A tenant has at most Config.Keys live keys (live.go). Nodes count in the background
// how many there are. The scripts look at the bound only when a key is absent.
//
// A user of an ACL needs, on the keys below the prefix:
//
//	+evalsha +eval +time +mget +get +set +getrange +strlen +append +setrange +pexpire +del
//
// and may have +info and +config|get, to check the version and to warn if Redis may evict
// counters, and +scan for DeleteAll. With rediss:// or a cluster, the client also needs
// +cluster, +hello, +select and +ping.
//
// The package does not depend on policies, plans or failure modes. An outcome reports
// whether a request was decided, and if not, whether it may have been charged.
package redis
