// Package store stores all data in a database. It implements the Store contracts of tenants, plans, exceptions,
// accounts, audit, metrics and nodes, and snapshot.Source, over database/sql.
//
// Both engines, Postgres and SQLite, use the same SQL text. Each aggregate has one file, with the SQL beside its scan
// function. The interface engine contains the differences between the engines:
//
//	store.go                    opening; reading with a timeout and one retry
//	edit_transaction.go         writing: a change, its audit lines, revision and notification, in one transaction
//	audit.go                    audit lines, each with a hash of the previous one, and their verification
//	driver_errors.go            maps driver errors to kinds of problems, by code and constraint
//	postgres.go                 pgx pool, LISTEN and NOTIFY, advisory locks
//	sqlite.go                   the embedded default: one writer, many readers, lock files
//	migrate.go                  the schema: up, down, status, force
//	document_json.go            the JSON text of plans and exceptions
//	exceptions.go               the common part of overrides, list entries and blocks
//	snapshot_changes.go         the rows from which a snapshot is compiled
//	add_counts.go               adds the counts of a node once
//	read_counts_and_denials.go  reads counts and kept denials
//	roll_up_counts.go           computes hours and days from the next finer step
//	nodes.go                    the reports of nodes
//	prune_counts.go             deletes old rows
//
// # Transactions
//
// Each method that writes is one transaction. Its first statement raises the number in the single row of the table
// revision. The lock of that row lasts until the commit, so edits are serialized. Therefore revisions are committed
// in order and without gaps, each changed row can store its revision, and what an edit reads stays true until it
// commits. Edits come from people and scripts, a few per second at most, so serialization costs little.
//
// Changes of sessions, and audit lines without a change, do not raise the revision (see aside in edit_transaction.go).
// They wait only for the lock of the newest audit hash, which every transaction acquires last.
//
// Every node writes counts of decisions every second. These transactions neither raise the revision nor wait for it,
// and they can be repeated.
//
// The package must not depend on HTTP. It does not validate documents.
package store
