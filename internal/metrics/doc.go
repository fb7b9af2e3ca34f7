// Package metrics counts each decision once and answers queries about the counts.
//
// Recorder.Record counts a decision during each check. It acquires one of several shards without a lock, adds to
// plain memory, and allocates nothing in the steady state. Handler serves the counts to Prometheus. Every second, the
// Flusher drains the counts to the database. So every node can answer queries about all nodes.
//
//	recorder.go                   which counts a decision changes
//	recorder_shard.go             the memory of the counts, and its bound
//	prometheus_counters.go        the Prometheus counters in a shard
//	prometheus.go                 the series of /metrics
//	limiter_calls.go              the duration and the results of limiter calls
//	recent_seconds.go             the last 15 minutes of this node, by second
//
//	sketch.go                     the kinds of sketches
//	histogram.go                  histograms with fixed logarithmic buckets, and their stored form
//	topkeys.go                    top keys, with the error of each: the Space-Saving algorithm
//	topkeys_json.go               the stored form of top keys
//	topkeys_sum.go                adds up several stored rankings of keys
//	readable_key.go               the text of a key for people
//	sketch_json_decoder.go        a fast decoder of the stored form of sketches
//	sketch_cache.go               caches decoded sketches
//
//	denial_sampler.go             which denials are kept, and their explanation
//	kept_denial.go                the types of kept denials
//
//	counts.go                     the counts in a row, and the key of a row
//	store.go                      the contract of the Store, which has the rows in a database
//	drain_shards.go               takes the counts since the last drain out of the shards
//	flusher.go                    writes drained counts to the Store
//	unflushed_counts.go           the drained counts that are in no batch yet
//	roller.go                     rolls minutes up to hours and days, on one node
//
//	analytics.go                  Analytics, and queries for traffic and kept denials
//	query_*.go                    the other queries, the types of results, and the plan of a query
//	change_mark.go                a value that changes with each added batch, for live pages
//
// No metric label contains a key, a route or an attribute value. Only tenants that a setting names have series. So
// the number of series is fixed at the start. The package must not depend on HTTP routes, SQL, the snapshot, or
// Redis.
package metrics
