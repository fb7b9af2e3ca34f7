// Package metrics counts each decision once and answers queries about the counts.
//
// Recorder.Record counts a decision during each check. It acquires one of several shards without a lock, adds to
// plain memory, and allocates nothing in the steady state. Handler serves the counts to Prometheus. Every second, the
// Flusher drains the counts to the database. So every node can answer queries about all nodes.
//
//	recorder.go             which counts a decision changes
//	shard.go                the memory of the counts, and its bound
//	prometheus_counters.go  the Prometheus counters in a shard
//	prometheus.go           the series of /metrics
//	topkeys.go              top keys, with the error of each: the Space-Saving algorithm
//	topkeys_doc.go          the stored form of top keys; sketch_scan.go decodes it
//	topkeys_union.go        combines several stored rankings of keys
//	key_text.go             the text of a key for people
//	histogram.go            histograms with fixed logarithmic buckets, and their stored form
//	denial_samples.go       which denials are kept, and their explanation
//	denial.go               a kept denial
//	change_mark.go          a value that changes with each added batch, for live pages
//	drain.go                takes the counts since the last drain out of the shards
//	ring.go                 the last 15 minutes of this node, by second
//	limiter.go              the duration and the results of limiter calls
//	counts.go               rows of counts, sketches, and the Store contract
//	flusher.go              writes counts to the Store; batch.go makes the batches
//	roller.go               rolls minutes up to hours and days, on one node
//	analytics.go            the types of results; query*.go and overview.go compute them
//	sketch_cache.go         caches decoded sketches
//
// No metric label contains a key, a route or an attribute value. Only tenants that a setting names have series. So
// the number of series is fixed at the start. The package must not depend on HTTP routes, SQL, the snapshot, or
// Redis.
package metrics
