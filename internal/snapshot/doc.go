// Package snapshot compiles tenants, keys and plans into one immutable lookup,
// and swaps it when they change.
//
// Rows come in at Source, as they are stored. Compile judges them: a plan or a
// tenant that cannot be used keeps its last good version and is listed among
// the Problems, and a world that looks like a lost or restored database is held
// for an operator. A Watcher keeps one Snapshot current; a request reads it with
// one atomic load and asks no database.
//
//	source.go    where rows come from; store implements it
//	snapshot.go  the lookup; its maps are internal/cow's, of which an edit copies only the part that it writes
//	compile.go   rows to lookup, only what changed
//	exceptions.go  what was set for tenants beside their plans; exception_row.go judges its rows
//	plan.go      a published plan to enforcement.Plan
//	watcher.go   notification and polling, swapping
//
// The package refuses to know HTTP, SQL and how limits are counted.
package snapshot
