package metrics

import (
	"context"
	"slices"
	"time"
)

// Two kinds of rows are stored by tenant number, where 0 is the sum over all tenants. A row of counts is added to the
// stored row. A sketch is a small summary (top keys, a histogram) of a minute; each node has its own row and replaces
// it.

// A Step is the length of time that one stored row covers.
type Step string

// The steps. Minutes are rolled up to hours and hours to days. Days start at midnight UTC.
const (
	Minute Step = "minute"
	Hour   Step = "hour"
	Day    Step = "day"
)

// Duration returns the length of a step.
func (s Step) Duration() time.Duration {
	switch s {
	case Hour:
		return time.Hour
	case Day:
		return 24 * time.Hour
	}
	return time.Minute
}

// A Kind says what a row of counts is about.
type Kind string

// The kinds of rows.
const (
	KindTotal  Kind = "total"  // each decision of the tenant once; Name is ""
	KindRoute  Kind = "route"  // each decision once; Name is the most specific route pattern that matches, or "(none)"
	KindPolicy Kind = "policy" // each decision once per applied policy; a denial counts for the limit with the longest retry time
)

// A CountKey identifies a row of counts.
type CountKey struct {
	At     int64  // start of the step, in seconds since the epoch
	Tenant uint32 // number; 0: the sum over all tenants
	Kind   Kind
	Name   string
}

// Counts are numbers of decisions. Each decision counts in Requests and in exactly one of the fields from OK to
// Unavailable. Peeks are not counted.
type Counts struct {
	Requests int64
	// Allowed decisions, by reason.
	OK, Listed, Unmatched int64
	// OverLimit and NeverFits are denials by limits (reasons over_limit, cost_exceeds_quota). Their share of Requests
	// is the rate of 429 responses. In a row of a policy, they count only the denials that this policy's limits
	// caused; denials by other policies are in OtherPolicy.
	OverLimit, NeverFits, OtherPolicy int64
	// Other denials, by reason.
	Blocked, DeniedByList, MissingAttribute, DeniedUnmatched, Suspended, BatchRefused, Unavailable int64
	// Properties of decisions that are also counted above.
	Forced        int64 // checks with mode force
	ShadowRefused int64 // allowed, but a shadow policy (in a row of a policy: this one) would have denied
	Degraded      int64 // decisions by a failure mode, because the limiter was unavailable
	Local         int64 // the part of Degraded that the node's own limiter decided
	// Cost is the sum of the costs of allowed decisions that were charged to a limit.
	Cost int64
}

// Add adds o to c.
func (c *Counts) Add(o *Counts) {
	mine, theirs := c.fields(), o.fields()
	for i := range mine {
		*mine[i] += *theirs[i]
	}
}

// Limited returns the number of denials by limits.
func (c *Counts) Limited() int64 { return c.OverLimit + c.NeverFits }

// Allowed returns the number of allowed decisions.
func (c *Counts) Allowed() int64 { return c.OK + c.Listed + c.Unmatched }

// Columns are the names of the fields in the database, in the order of Fields.
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

// FieldsOf returns pointers to the fields with the given names, which are names in Columns. It returns false if a
// name is unknown.
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

// A CountRow is a row of counts with the key that identifies it.
type CountRow struct {
	CountKey
	Counts
}

// The names of sketches. Top keys and each kind of histogram have their own JSON form. topkeys_doc.go and
// histogram.go encode, decode and merge them.
const (
	SketchLimitedKeys    = "limited_keys"    // top keys by denials by limits of the key's policy
	SketchAllowedKeys    = "allowed_keys"    // top keys by allowed decisions; only enforced policies with a count_by
	SketchLimitedTenants = "limited_tenants" // only for tenant 0: top tenants by denials by limits
	SketchBusyTenants    = "busy_tenants"    // only for tenant 0: top tenants by decisions
	SketchRetryAfter     = "retry_after"     // histogram of retry_after_ms of denials by limits and blocks
	SketchRemaining      = "remaining"       // for each policy: histogram of remaining/quota at the decision, from a sample
	SketchLatency        = "latency"         // only for tenant 0: histograms of the duration of limiter calls (µs), shared and local
)

// A SketchKey identifies a stored sketch.
type SketchKey struct {
	At     int64 // start of the step, in seconds since the epoch
	Tenant uint32
	Name   string
	// Node is the node that wrote the row. It is "" if the row was rolled up from the rows of all nodes.
	Node string
}

// A SketchRow is a stored sketch with the key that identifies it.
type SketchRow struct {
	SketchKey
	Doc []byte // JSON
}

// A Batch contains the rows that a node writes in one transaction.
type Batch struct {
	// Node is the process that counted. It is a UUID that is created at the start of the process.
	Node string
	// Seq is 1 for the first batch of a node and increases by one. If a node gets no response for a batch, it sends
	// the batch again with the same Seq and content.
	Seq      int64
	Counts   []CountRow  // of minutes; the store adds them to the stored rows
	Sketches []SketchRow // of minutes; the store replaces the stored rows
	Refusals []Refusal
}

// A Store stores counts in the database. Implementations pass storetest.Run.
type Store interface {
	// AddCounts writes a batch in one transaction, at most once. If the store has a batch of this node with the same
	// or a higher Seq, AddCounts changes nothing. It records which hours need a roll-up.
	AddCounts(ctx context.Context, b Batch) error

	// Kept returns which rows contain the counts of [from, to), in seconds since the epoch.
	Kept(ctx context.Context, from, to int64) (Kept, error)
	// Mark returns a value that changes whenever a batch is added.
	Mark(ctx context.Context) (Mark, error)
	// Counts returns the rows of one step that match the query, newest first.
	Counts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// SumCounts returns the sum over the time of the query for each tenant and name, the largest Requests first. At
	// is the query's From.
	SumCounts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// Sketches returns the sketches of one step of every node.
	Sketches(ctx context.Context, q SketchQuery) ([]SketchRow, error)
	// Refusal returns a kept denial by its decision ID. The error is problem.NotFound if there is none, or if tenant
	// is not 0 and is not the denial's tenant.
	Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error)
	// Refusals returns the kept denials that match a filter, newest first.
	Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error)

	// TakeLease acquires or renews a lease for a holder until now + life. It returns false if another holder has the
	// lease.
	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// RollUpsDue returns the hours and days that have ended at now and whose rows do not include all rows of the next
	// finer step. They are ordered oldest first, hours before days.
	RollUpsDue(ctx context.Context, now time.Time, limit int) ([]RollUp, error)
	// RollUp rebuilds the rows of one hour or day from the next finer step, in one transaction, if the roll-up is
	// due. merge joins the documents of the sketches with one key; if it returns nil, that sketch is left out.
	RollUp(ctx context.Context, r RollUp, merge func(name string, docs [][]byte) ([]byte, error)) error
	// Prune deletes expired rows, up to a bounded number per call. more reports whether expired rows may be left.
	Prune(ctx context.Context, r Retention) (more bool, err error)
}

// A Mark identifies the set of batches that all nodes have added. If two marks are equal, no batch was added between
// them. Marks have no order.
type Mark struct{ Nodes, Batches, Times int64 }

// A RollUp is an hour or a day whose rows must be rebuilt.
type RollUp struct {
	Step Step // Hour or Day
	At   int64
}

// Kept says which rows contain the counts of a span. The row of an hour is complete unless the hour is due. The row
// of a day is complete unless the day or one of its hours is due. For an incomplete row, the rows of the finer step
// count.
type Kept struct {
	// Minutes and Hours are the start of the oldest rows that exist of these steps, in seconds since the epoch.
	Minutes, Hours int64
	// Due lists the hours and days of the span that need a roll-up.
	Due []RollUp
}

// A CountQuery selects the rows of one step that start in [From, To).
type CountQuery struct {
	Step     Step
	From, To int64 // seconds since the epoch, multiples of the step
	Tenant   uint32
	Tenants  []uint32 // if set, used instead of Tenant
	Kind     Kind
	Names    []string // routes or policies; nil: all
	Fields   []string // names from Columns to read, the others are 0; nil: all; without requests, sums have no order
	Limit    int      // maximum number of rows; 0: no maximum
}

// A SketchQuery selects the sketches of one step that start in [From, To).
type SketchQuery struct {
	Step     Step
	From, To int64
	Tenant   uint32
	Name     string
	Limit    int
}

// Retention says which rows Prune deletes: those before an instant, in seconds since the epoch. Rows that are not
// rolled up yet are not deleted.
type Retention struct {
	Minutes, Hours, Days int64
	// Refusals is the instant before which kept denials are deleted. The oldest beyond MaxRefusals are deleted too.
	Refusals    int64
	MaxRefusals int
	// Nodes is the instant before which the sequence number of an inactive node is deleted.
	Nodes int64
}
