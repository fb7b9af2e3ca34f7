// Package store stores all data in a database. It implements the Store contracts
// of tenants, plans, exceptions, accounts, audit, metrics and nodes, and
// snapshot.Source, over database/sql.
//
// There is one SQL text for both engines, and one file for each aggregate, with
// the SQL beside its scan function. The engine interface has the differences:
//
//	store.go       opening; reading with a timeout and one retry
//	transaction.go writing: change, audit lines, revision and notification, in one transaction
//	audit.go       audit lines, each with a hash of the one before, and their verification
//	fault.go       driver errors to kinds of problems, by code and constraint
//	postgres.go    pgx pool, LISTEN and NOTIFY, advisory locks
//	sqlite.go      the embedded default: one writer, many readers, lock files
//	migrate.go     the schema: up, down, status, force
//	document.go    the documents of plans and exceptions as JSON text
//	exceptions.go  what overrides, list entries and blocks share
//	changes.go     the rows from which a snapshot is compiled
//	counts.go      adding the counts of a node once; analytics.go reads them
//	rollup.go      hours and days from the step below
//	nodes.go       the reports of nodes
//	prune.go       removing old rows
//
// # Transactions
//
// Each method that writes is one transaction. Its first statement raises the one
// row of the table revision. The lock of that row lasts until the commit, so edits
// are serialized: revisions commit in order and without gaps, each changed row can
// have the number, and what an edit reads stays true until it commits. Edits come
// from people and scripts, a few per second at most, so this costs little.
//
// Sessions, and audit lines without a change, do not raise the revision (see
// aside in transaction.go). They wait only for the head of the audit log, which is the
// last lock of every transaction.
//
// Counts of decisions are written every second by every node. Their transactions
// neither raise the revision nor wait for it, and they can be repeated.
//
// The package must not depend on HTTP. It does not validate documents.
package store
