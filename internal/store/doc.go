// Package store keeps everything in a database: it implements the Store
// contracts of tenants, plans, exceptions, accounts, audit, metrics and fleet,
// and snapshot.Source, over database/sql.
//
// There is one SQL text for both engines, one file an aggregate, the SQL beside
// its scan. What differs between the engines is behind the engine interface:
//
//	store.go     opening, reading with a deadline and one retry
//	edit.go      writing: change, audit lines, revision, hint, in one transaction
//	audit.go     the lines, each closed by a hash of the one before, and the walk
//	fault.go     driver errors to kinds of problem, by code and constraint
//	postgres.go  pgx pool, LISTEN and NOTIFY, advisory lock around migrations
//	sqlite.go    the embedded default: one writer, many readers, lock files
//	migrate.go   the schema: up, down, status, force
//	document.go  plans' documents, and what is set beside them, as JSON text
//	exceptions.go  what overrides, list entries and blocks have in common
//	changes.go   what a snapshot is compiled from
//	counts.go    adding what a node counted, once; analytics.go reads it
//	rollup.go    hours and days from the step below
//	nodes.go     what every node says of itself
//	prune.go     giving up and removing what is old
//
// # Transactions
//
// Each writing method is one transaction, and its first statement raises the
// one row of the table revision. The row's lock is held until the commit, so
// edits take turns: revisions commit in their order without gaps, each changed
// row can carry the number, and what an edit reads stays true until it is
// written. Raising it last would let edits overlap, but then rows could not
// carry it without being written twice. Edits are made by people and scripts, a
// few a second at most; taking turns costs nothing that matters.
//
// Sessions, and audit lines without a change, are written aside (edit.go): they
// take turns only at their end, at the head of the audit log's chain, which is
// the last lock that anybody takes.
//
// Counts of decisions are written beside that, every second by every node: their
// transactions neither raise the revision nor wait for it, and may be repeated.
//
// The package refuses to know HTTP, what a valid document is, and when to load.
package store
