// Package snapshot compiles tenants, keys and plans into one immutable lookup structure, and replaces it when they
// change.
//
// A Source provides the stored rows. Compile validates them. An invalid plan or tenant keeps its last valid version
// and is listed in Problems. If the new state looks like a lost or restored database, Compile rejects it and keeps
// the previous snapshot. A Watcher keeps one Snapshot up to date. A request reads it with one atomic load and without
// a database.
//
//	source.go         the rows; store implements Source
//	snapshot.go       the lookup structure; its maps are those of internal/cow
//	compile.go        compiles only the rows that changed; compile_api_key.go does so for API keys
//	plausibility.go   which new states are rejected
//	exceptions.go     overrides, lists and blocks; exception_row.go validates their rows
//	plan.go           compiles a published plan to an enforcement.Plan
//	watcher.go        notifications, polling, and the replacement of the snapshot
//	file.go           a copy of all rows on disk, for a start without the database
//
// The package must not depend on HTTP, SQL or how limits are counted.
package snapshot
