// Package metrics counts each decision once, in memory.
//
// Decisions come in at Recorder.Record, on the path of every check: it adds to
// counters that exist already, takes no lock and allocates nothing. What was
// counted goes out at Handler, to Prometheus.
//
//	recorder.go    what is counted: decisions by outcome, reason and mode
//	limiter.go     how long the limiter takes and how its requests end
//	histogram.go   fixed logarithmic buckets, lock-free
//	prometheus.go  reads all of it when it is scraped
//
// No label holds a tenant, key, route or value: the number of series is fixed
// when the program is built. The package refuses to know HTTP routes, SQL, and
// where the snapshot and Redis are: it is handed functions that tell their state.
package metrics
