package metrics

import (
	"context"
	"slices"
	"time"
)

// There are two kinds of row, both by the number of the tenant; 0 is all tenants
// together. Counts are added to the stored row. Sketches are small summaries (top
// keys, histograms): each node replaces its own row of a minute.

// A Step is the length of a row.
type Step string

// The steps. Minutes roll up to hours and hours to days, all in UTC.
const (
	Minute Step = "minute"
	Hour   Step = "hour"
	Day    Step = "day"
)

// Duration of a step.
func (s Step) Duration() time.Duration {
	switch s {
	case Hour:
		return time.Hour
	case Day:
		return 24 * time.Hour
	}
	return time.Minute
}

// A Kind is the subject of a row of counts.
type Kind string

// The kinds of rows.
const (
	KindTotal  Kind = "total"  // every decision of the tenant once; Name is ""
	KindRoute  Kind = "route"  // every decision once, under the most specific matching pattern; "(none)" without one
	KindPolicy Kind = "policy" // each policy that applied; a refusal belongs to the enforced limit with the longest retry
)

// A CountKey identifies a row of counts.
type CountKey struct {
	At     int64  // beginning of the step, in seconds since the epoch
	Tenant uint32 // number; 0: all together
	Kind   Kind
	Name   string
}

// Counts are numbers of decisions. Each decision is in Requests and in one of the fields from OK
// to Unavailable. Peeks are not counted.
type Counts struct {
	Requests int64
	// Allowed by reason.
	OK, Listed, Unmatched int64
	// OverLimit and NeverFits are denials by limits (over_limit, cost_exceeds_quota). Divided by
	// Requests they are the 429 rate. In a row of a policy they are only the denials that belong
	// to it; those of other policies are in OtherPolicy.
	OverLimit, NeverFits, OtherPolicy int64
	// Other refusals by reason.
	Blocked, DeniedByList, MissingAttribute, DeniedUnmatched, Suspended, BatchRefused, Unavailable int64
	// Marks on decisions that are counted above as well.
	Forced        int64 // mode force
	ShadowRefused int64 // allowed, and a shadow policy (of a policy's row: this one) would have refused
	Degraded      int64 // failure modes answered
	Local         int64 // of Degraded: decided by this node's own limiter
	// Cost is the sum of the costs of allowed decisions that a limit was charged for.
	Cost int64
}

// Add adds o to c.
func (c *Counts) Add(o *Counts) {
	mine, theirs := c.fields(), o.fields()
	for i := range mine {
		*mine[i] += *theirs[i]
	}
}

// Limited returns the denials by limits.
func (c *Counts) Limited() int64 { return c.OverLimit + c.NeverFits }

// Allowed returns the allowed decisions.
func (c *Counts) Allowed() int64 { return c.OK + c.Listed + c.Unmatched }

// Columns are the names of the fields in a store, in the order of Fields.
var Columns = []string{
	"requests", "ok", "listed", "unmatched", "over_limit", "never_fits", "other_policy", "blocked", "denied_by_list",
	"missing_attribute", "denied_unmatched", "suspended", "batch_refused", "unavailable",
	"forced", "shadow_refused", "degraded", "local", "cost",
}

// Fields returns pointers to the fields, in the order of Columns.
func (c *Counts) Fields() []any {
	out := make([]any, 0, len(Columns))
	for _, f := range c.fields() {
		out = append(out, f)
	}
	return out
}

// FieldsOf returns pointers to some fields by their names in Columns; ok is false for an unknown
// name.
func (c *Counts) FieldsOf(names []string) (list []any, ok bool) {
	fields := c.fields()
	for _, name := range names {
		at := slices.Index(Columns, name)
		if at < 0 {
			return nil, false
		}
		list = append(list, fields[at])
	}
	return list, true
}

func (c *Counts) fields() []*int64 {
	return []*int64{
		&c.Requests, &c.OK, &c.Listed, &c.Unmatched, &c.OverLimit, &c.NeverFits, &c.OtherPolicy, &c.Blocked, &c.DeniedByList,
		&c.MissingAttribute, &c.DeniedUnmatched, &c.Suspended, &c.BatchRefused, &c.Unavailable,
		&c.Forced, &c.ShadowRefused, &c.Degraded, &c.Local, &c.Cost,
	}
}

// A CountRow is counts with their key.
type CountRow struct {
	CountKey
	Counts
}

// The names of sketches. Those of a tenant's keys and of histograms have a form
// of their own each; topkeys_doc.go and histogram.go encode, decode and merge them.
const (
	SketchLimitedKeys    = "limited_keys"    // top keys by refusals that belong to their policy
	SketchAllowedKeys    = "allowed_keys"    // top keys by allowed decisions, of enforced policies that count by something
	SketchLimitedTenants = "limited_tenants" // of tenant 0: top tenants by refusals by limits
	SketchBusyTenants    = "busy_tenants"    // of tenant 0: top tenants by decisions
	SketchRetryAfter     = "retry_after"     // histogram of retry_after_ms of refusals by limits and blocks
	SketchRemaining      = "remaining"       // by policy: histogram of remaining/quota at the decision, sampled
	SketchLatency        = "latency"         // of tenant 0: histogram of the limiter's time in microseconds, by shared and local
)

// A SketchKey identifies a row of a sketch.
type SketchKey struct {
	At     int64 // beginning of the step, in seconds since the epoch
	Tenant uint32
	Name   string
	// Node that wrote the row; "" when it was rolled up from all.
	Node string
}

// A SketchRow is a sketch with its key.
type SketchRow struct {
	SketchKey
	Doc []byte // JSON
}

// A Batch is what one node adds at once.
type Batch struct {
	// Node is the process that counted: a UUID made at its start.
	Node string
	// Seq is 1 for the first batch of a node and rises by one. A batch without an answer is sent
	// again with the same Seq and content.
	Seq      int64
	Counts   []CountRow  // of minutes: to add
	Sketches []SketchRow // of minutes: to write whole
	Refusals []Refusal
}

// A Store stores counts. Implementations pass storetest.Run.
type Store interface {
	// AddCounts applies a batch in one transaction, once: if a batch of this node with the same
	// Seq or a higher one exists, it changes nothing. It notes which hours need a roll-up.
	AddCounts(ctx context.Context, b Batch) error

	// Kept returns which rows hold the counts of [from, to), in seconds since the epoch.
	Kept(ctx context.Context, from, to int64) (Kept, error)
	// Mark returns a value that changes with each added batch.
	Mark(ctx context.Context) (Mark, error)
	// Counts returns rows of one step, newest first.
	Counts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// SumCounts returns the sum over the time of the query for each tenant and name, largest
	// Requests first. At is the query's From.
	SumCounts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// Sketches returns rows of one step, of every node.
	Sketches(ctx context.Context, q SketchQuery) ([]SketchRow, error)
	// Refusal finds by decision ID; NotFound. A tenant other than 0 must match.
	Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error)
	// Refusals returns the refusals that match a filter, newest first.
	Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error)

	// TakeLease gives a lease to a holder until now + life, unless another holder has it. A holder
	// can renew its lease.
	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// RollUpsDue returns the hours and days that are over at now and do not contain all rows of
	// the step below, oldest first, hours before days.
	RollUpsDue(ctx context.Context, now time.Time, limit int) ([]RollUp, error)
	// RollUp rebuilds the rows of one hour or day from the step below, in one transaction, if it
	// is due. merge joins the sketches of one key; nil leaves them out.
	RollUp(ctx context.Context, r RollUp, merge func(name string, docs [][]byte) ([]byte, error)) error
	// Prune removes expired rows, at most a bounded number per call. more reports whether some may
	// be left.
	Prune(ctx context.Context, r Retention) (more bool, err error)
}

// A Mark identifies the set of added batches of all nodes. Equal marks mean that no batch was
// added in between; marks have no order.
type Mark struct{ Nodes, Batches, Times int64 }

// A RollUp is an hour or a day to be written anew.
type RollUp struct {
	Step Step // Hour or Day
	At   int64
}

// Kept says which rows hold the counts. An hour or a day is complete in its own row, unless it is
// due, or an hour of the day is. Otherwise the rows below it are complete.
type Kept struct {
	// Minutes and Hours are the first instants of the existing rows of these steps.
	Minutes, Hours int64
	// Due are the due hours and days of every day of the span.
	Due []RollUp
}

// A CountQuery selects rows in [From, To) of one step.
type CountQuery struct {
	Step     Step
	From, To int64 // seconds since the epoch, multiples of the step
	Tenant   uint32
	Tenants  []uint32 // instead of Tenant: several
	Kind     Kind
	Names    []string // none: all
	Fields   []string // of Columns: the others are 0, and sums are in no order without requests; none: all
	Limit    int      // rows; 0: all
}

// A SketchQuery selects sketches in [From, To) of one step.
type SketchQuery struct {
	Step     Step
	From, To int64
	Tenant   uint32
	Name     string
	Limit    int
}

// Retention says what Prune removes: rows before an instant, in seconds since the epoch. Rows that
// were not rolled up stay.
type Retention struct {
	Minutes, Hours, Days int64
	// Refusals before this instant, and the oldest beyond MaxRefusals.
	Refusals    int64
	MaxRefusals int
	// Nodes: marks of nodes that wrote nothing since then.
	Nodes int64
}
