// Package snapshot compiles tenants, keys and plans into one immutable lookup,
// and swaps it when they change.
//
// Source provides the stored rows. Compile validates them: an invalid plan or tenant
// keeps its last good version and is listed in Problems, and a state that looks like
// a lost or restored database is held. A Watcher keeps one Snapshot current. A request
// reads it with one atomic load, without a database.
//
//	source.go         the rows; store implements it
//	snapshot.go       the lookup; its maps are those of internal/cow
//	compile.go        rows to lookup, only what changed; compile_api_key.go: API keys
//	plausibility.go   which states are held
//	exceptions.go     overrides, lists and blocks; exception_row.go validates their rows
//	plan.go           a published plan to enforcement.Plan
//	watcher.go        notification, polling, swapping
//
// The package must not depend on HTTP, SQL and how limits are counted.
package snapshot
