// Package snapshot compiles the stored tenants, keys, plans and exceptions into one immutable
// Snapshot for lookups. When they change, it replaces the Snapshot by a new one.
//
// A Source returns the stored rows. Compile validates them. If a plan or a tenant is invalid, its
// last valid version stays in use, and Problems lists it. If the database looks as if its data was
// lost or restored, Compile rejects its state, and the previous snapshot stays in use. A Watcher
// keeps the current Snapshot up to date. A request reads it with one atomic load and without a
// database.
//
//	source.go                    the stored rows, and the interface Source, which store implements
//	snapshot.go                  the Snapshot, and lookups in it; its maps are those of internal/cow
//	compile.go                   Compile: compiles the rows that changed
//	compile_api_key.go           compiles API keys
//	compile_plan.go              compiles the published version of a plan to an enforcement.Plan
//	compile_exceptions.go        compiles overrides, list entries and blocks
//	validate_exception_rows.go   validates the rows of overrides, list entries and blocks
//	plausibility.go              which stored states Compile rejects
//	watcher.go                   Watcher: notifications, polling, and the replacement of the snapshot
//	saved_file.go                a copy of all rows in a file, for a start without the database
//	key_uses.go                  when each key was last used
//
// The package must not depend on HTTP, on SQL, or on the limiters.
package snapshot
