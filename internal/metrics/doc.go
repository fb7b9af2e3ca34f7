// Package metrics counts each decision once and answers queries about the counts.
//
// Recorder.Record receives decisions, on the path of every check. It takes one of
// several shards without a lock, adds to plain memory, and allocates nothing in the
// steady state. Handler serves the counts to Prometheus. The Flusher drains them to
// the database every second, from where every node answers for all nodes.
//
//	recorder.go             which counts a decision changes
//	shard.go                the memory of the counts, and its bound
//	prometheus_counters.go  the counters of Prometheus in a shard
//	prometheus.go           the series of /metrics
//	topkeys.go              top keys: Space-Saving, with the error of each
//	topkeys_doc.go          their stored documents; sketch_scan.go reads these
//	topkeys_union.go        rankings of several documents together
//	key_text.go             the text by which people see a key
//	histogram.go            fixed logarithmic buckets; documents of histograms
//	denial_samples.go       which denials are kept, and their explanation
//	denial.go               a kept denial
//	mark.go                 the mark of the counts, shared by all callers
//	drain.go                takes out the counts since the last drain
//	ring.go                 the last 15 minutes by second, of this node
//	limiter.go              the time and the verdicts of the limiter
//	counts.go               rows of counts, sketches, and the Store contract
//	flusher.go              writes counts to the Store; batch.go makes the batches
//	roller.go               rolls minutes up to hours and days, on one node
//	analytics.go            the results; query*.go and overview.go make them
//	sketch_cache.go         caches decoded sketches
//
// No label has a key, route or value, and only tenants that a setting names have
// series: the number of series is fixed at the start. The package must not depend
// on HTTP routes, SQL, the snapshot, or Redis.
package metrics
