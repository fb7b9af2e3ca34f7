package metrics

import (
	"context"
	"time"
)

// A Batch contains the rows that a node writes in one transaction.
type Batch struct {
	// Node is the ID of the process that counted. It is a UUID that each process creates when it
	// starts.
	Node string
	// Seq is the number of the batch: 1 for the first batch of a node, and one more for each
	// further batch. If a node does not know whether the store has added a batch, it sends the
	// batch again with the same Seq and content.
	Seq      int64
	Counts   []CountRow  // rows of minutes; the store adds them to the stored rows
	Sketches []SketchRow // sketches of minutes; each replaces the stored sketch with the same key
	Refusals []Refusal
}

// A Store stores counts in the database. Implementations pass storetest.Run.
type Store interface {
	// AddCounts writes a batch in one transaction. If the store has already added a batch of the
	// same node with this Seq or a higher one, AddCounts changes nothing, so no batch is added
	// twice. AddCounts also records which hours need a roll-up.
	AddCounts(ctx context.Context, b Batch) error

	// Kept returns which rows are not deleted, and which hours and days in [from, to) need a
	// roll-up. from and to are in seconds since the epoch.
	Kept(ctx context.Context, from, to int64) (Kept, error)
	// Mark returns a value that changes whenever AddCounts adds a batch.
	Mark(ctx context.Context) (Mark, error)
	// Counts returns the rows that match the query, newest first.
	Counts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// SumCounts returns one row for each tenant and name: the sum of the rows that match the
	// query. The row with the most Requests comes first. The field At of each row is q.From.
	SumCounts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// Sketches returns the sketches that match the query, oldest first. For one step and one
	// name, each node has its own sketch.
	Sketches(ctx context.Context, q SketchQuery) ([]SketchRow, error)
	// Refusal returns a kept denial by its decision ID. The error is problem.NotFound if the denial
	// is not kept, or if tenant is not 0 and the denial belongs to another tenant.
	Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error)
	// Refusals returns the kept denials that match a filter, newest first.
	Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error)

	// TakeLease acquires or renews the lease with the given name. The lease then belongs to holder
	// until now + life. TakeLease returns false if another holder has the lease.
	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// RollUpsDue returns at most limit hours and days that ended before now and need a roll-up,
	// because rows of the next finer step have changed. Hours come before days, and earlier times
	// before later times.
	RollUpsDue(ctx context.Context, now time.Time, limit int) ([]RollUp, error)
	// RollUp recomputes the rows of one hour or day from the rows of the next finer step. It does
	// nothing if the roll-up is not due. Queries never see a part of the result. RollUp calls the
	// function merge to combine all sketches of one tenant that have the same name into one sketch.
	// If merge returns nil, RollUp writes no sketch.
	RollUp(ctx context.Context, r RollUp, merge func(name string, docs [][]byte) ([]byte, error)) error
	// Prune deletes expired rows, at most a fixed number in each call. more is true if there
	// may be further expired rows.
	Prune(ctx context.Context, r Retention) (more bool, err error)
}

// A Mark identifies the set of all batches that the nodes have added. If two marks are equal, no
// batch was added in the time between them. Marks have no order.
type Mark struct{ Nodes, Batches, Times int64 }

// A RollUp is an hour or a day whose rows must be recomputed.
type RollUp struct {
	Step Step // Hour or Day
	At   int64
}

// Kept says which rows a query must read for a time range. The row of an hour is complete unless
// Due lists the hour. The row of a day is complete unless Due lists the day or one of its hours. In
// place of an incomplete row, a query reads the rows of the next finer step.
type Kept struct {
	// Minutes and Hours are times in seconds since the epoch. The rows of minutes from Minutes on,
	// and the rows of hours from Hours on, are not deleted.
	Minutes, Hours int64
	// Due lists the hours and days in the time range that need a roll-up.
	Due []RollUp
}

// A CountQuery selects the rows of one step that start in [From, To).
type CountQuery struct {
	Step     Step
	From, To int64 // seconds since the epoch, multiples of the step
	Tenant   uint32
	Tenants  []uint32 // if it is not empty, the field Tenant is ignored
	Kind     Kind
	Names    []string // routes or policies; nil: all
	// names of the columns to read; nil stands for all. The other fields of the result are 0.
	// Without "requests", SumCounts has no order.
	Fields []string
	Limit  int // maximum number of rows; 0: no maximum
}

// A SketchQuery selects the sketches of one step that start in [From, To).
type SketchQuery struct {
	Step     Step
	From, To int64
	Tenant   uint32
	Name     string
	Limit    int
}

// Retention contains the times before which Prune deletes rows, in seconds since the epoch. Prune
// keeps rows that a roll-up still has to read.
type Retention struct {
	Minutes, Hours, Days int64
	// Prune deletes kept denials before the time Refusals. If more than MaxRefusals are left,
	// it also deletes the oldest ones.
	Refusals    int64
	MaxRefusals int
	// Nodes is a time, too. Prune deletes the sequence number of a node's last
	// batch if the node has added no batch since that time.
	Nodes int64
}
