// Package metrics counts each decision once, and answers what was counted.
//
// Decisions come in at Recorder.Record, on the path of every check: it takes one
// of several shards for itself without a lock, adds to plain memory, and in the
// steady state allocates nothing; a refusal that is kept is copied. What was
// counted goes out two ways: at Handler, to Prometheus, and every second by way
// of a drain to the database, from where every node answers for all.
//
//	recorder.go    what of a decision is counted where
//	shard.go       the memory that is counted in, and its bound
//	tally.go       the counters of Prometheus in a shard
//	sketch.go      top keys: Space-Saving, with the error of each
//	sketch_scan.go reads their documents in the form that is written, quicker than JSON in any form
//	histogram.go   fixed logarithmic buckets; documents of sketches, and merging them
//	refuse.go      which refusals are kept, and their explanation
//	drain.go       takes out what was counted since the last time
//	ring.go        the last quarter of an hour by second, of this node
//	limiter.go     how long the limiter takes and how its requests end
//	prometheus.go  reads the counters when it is scraped
//	counts.go      rows of counts, sketches, and the Store that keeps them
//	refusal.go     a kept refusal
//	flusher.go     adds what was counted to the Store, each batch once; batch.go makes them
//	roller.go      rolls minutes up to hours and days, on one node
//	analytics.go   what can be asked; query.go and its like answer, overview.go all of a page
//	tail.go        whether anything came, and the refusals that did
//
// No label of a series holds a key, route or value, and none a tenant but those
// that a setting names: the number of series is fixed when the program starts.
// The package refuses to know HTTP routes, SQL, and where the snapshot and Redis
// are: it is handed functions that tell their state.
package metrics
