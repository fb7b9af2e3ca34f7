package metrics

import (
	"context"
	"slices"
	"time"
)

// What is kept of decisions, for people to look at. Everything here is counted
// by its tenant's number; number 0 is all tenants together.
//
// There are two sorts of row. Counts add up: a flush adds to what is there.
// Sketches are small summaries (top keys, histograms) that can be merged: each
// node keeps its own row of a minute and writes it whole.

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

// A Kind says what a row of counts is about.
type Kind string

// The kinds of rows.
const (
	KindTotal  Kind = "total"  // every decision of the tenant once; Name is ""
	KindRoute  Kind = "route"  // every decision once, under the most specific matching pattern; "(none)" without one
	KindPolicy Kind = "policy" // each policy that applied; a refusal belongs to the enforced limit with the longest retry
)

// A CountKey is the identity of a row of counts.
type CountKey struct {
	At     int64  // beginning of the step, in seconds since the epoch
	Tenant uint32 // number; 0: all together
	Kind   Kind
	Name   string
}

// Counts are numbers of decisions. Every decision is in Requests and in one of
// the fields from OK to Unavailable; peeks are in none.
type Counts struct {
	Requests int64
	// Allowed by reason.
	OK, Listed, Unmatched int64
	// OverLimit and NeverFits are the refusals by limits (over_limit,
	// cost_exceeds_quota): over Requests they are the 429 rate. Of a policy's row
	// only those that belong to it; a refusal that belongs to another policy is in
	// OtherPolicy.
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

// Limited are the refusals by limits.
func (c *Counts) Limited() int64 { return c.OverLimit + c.NeverFits }

// Allowed decisions.
func (c *Counts) Allowed() int64 { return c.OK + c.Listed + c.Unmatched }

// Columns are the names of the fields in a store, in the order of Fields.
var Columns = []string{
	"requests", "ok", "listed", "unmatched", "over_limit", "never_fits", "other_policy", "blocked", "denied_by_list",
	"missing_attribute", "denied_unmatched", "suspended", "batch_refused", "unavailable",
	"forced", "shadow_refused", "degraded", "local", "cost",
}

// Fields gives the fields for scanning, in the order of Columns.
func (c *Counts) Fields() []any {
	out := make([]any, 0, len(Columns))
	for _, f := range c.fields() {
		out = append(out, f)
	}
	return out
}

// FieldsOf gives some of the fields for scanning, by their names in Columns; ok
// is false when one is no such name.
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

// A CountRow is counts with their identity.
type CountRow struct {
	CountKey
	Counts
}

// The names of sketches. Those of a tenant's keys and of histograms have a form
// of their own each; sketch.go and histogram.go encode, decode and merge them.
const (
	SketchLimitedKeys    = "limited_keys"    // top keys by refusals that belong to their policy
	SketchAllowedKeys    = "allowed_keys"    // top keys by allowed decisions, of enforced policies that count by something
	SketchLimitedTenants = "limited_tenants" // of tenant 0: top tenants by refusals by limits
	SketchBusyTenants    = "busy_tenants"    // of tenant 0: top tenants by decisions
	SketchRetryAfter     = "retry_after"     // histogram of retry_after_ms of refusals by limits and blocks
	SketchRemaining      = "remaining"       // by policy: histogram of remaining/quota at the decision, sampled
	SketchLatency        = "latency"         // of tenant 0: histogram of the limiter's time in microseconds, by shared and local
)

// A SketchKey is the identity of a sketch's row.
type SketchKey struct {
	At     int64 // beginning of the step, in seconds since the epoch
	Tenant uint32
	Name   string
	// Node that wrote the row; "" when it was rolled up from all.
	Node string
}

// A SketchRow is a sketch with its identity.
type SketchRow struct {
	SketchKey
	Doc []byte // JSON
}

// A Batch is what one node adds at once.
type Batch struct {
	// Node is the process that counted: a UUID made at its start.
	Node string
	// Seq rises by one with each batch of a node, from 1. A batch that was sent
	// and not answered is sent again with the same Seq and content.
	Seq      int64
	Counts   []CountRow  // of minutes: to add
	Sketches []SketchRow // of minutes: to write whole
	Refusals []Refusal
}

// A Store keeps counts. Implementations pass storetest.Run.
type Store interface {
	// AddCounts applies a batch in one transaction, once: when a batch of this
	// node with the same Seq or a higher one is there already, it changes
	// nothing. It notes which hours it touched, so that they are rolled up.
	AddCounts(ctx context.Context, b Batch) error

	// Kept tells, of [from, to) in seconds since the epoch, which rows hold what
	// was counted.
	Kept(ctx context.Context, from, to int64) (Kept, error)
	// Mark tells which batches were added.
	Mark(ctx context.Context) (Mark, error)
	// Counts gives rows of one step, newest first.
	Counts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// SumCounts gives, for each tenant and name of the query, the sum over its
	// time, largest Requests first. At is the query's From.
	SumCounts(ctx context.Context, q CountQuery) ([]CountRow, error)
	// Sketches gives rows of one step, of every node.
	Sketches(ctx context.Context, q SketchQuery) ([]SketchRow, error)
	// Refusal finds by decision id; NotFound. tenant, unless 0, must be its
	// tenant's number.
	Refusal(ctx context.Context, id [16]byte, tenant uint32) (Refusal, error)
	// Refusals gives those that a filter lets through, newest first.
	Refusals(ctx context.Context, f RefusalFilter) ([]Refusal, error)

	// TakeLease gives a lease to a holder until now + life, if nobody else holds
	// it; whoever holds it can take it again.
	TakeLease(ctx context.Context, name, holder string, life time.Duration) (bool, error)
	// RollUpsDue gives the steps above minutes that are over (their end is at or
	// before now) and whose rows do not hold all that is below them, oldest first,
	// hours before days.
	RollUpsDue(ctx context.Context, now time.Time, limit int) ([]RollUp, error)
	// RollUp writes the rows of one hour or day anew from the rows below it, in
	// one transaction, if it is due; merge joins the sketches of one key, and
	// gives nil to leave them out.
	RollUp(ctx context.Context, r RollUp, merge func(name string, docs [][]byte) ([]byte, error)) error
	// Prune removes what is older than it should be, at most a bounded number of
	// rows a call, and tells whether something may be left.
	Prune(ctx context.Context, r Retention) (more bool, err error)
}

// A Mark stands for the batches that were added, of all nodes. Two that are equal
// (==) say that none was added in between; there is no order.
type Mark struct{ Nodes, Batches, Times int64 }

// A RollUp is an hour or a day to be written anew.
type RollUp struct {
	Step Step // Hour or Day
	At   int64
}

// Kept tells which rows hold what was counted. An hour or day that is not due,
// and a day that has no hour that is due, is held whole by its own rows; one that
// is due by those below it.
type Kept struct {
	// Minutes and Hours are from where on these rows are kept.
	Minutes, Hours int64
	// Due are the steps that are due, over or not, of every day of the span.
	Due []RollUp
}

// A CountQuery asks for rows of counts in [From, To) of a step's table.
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

// A SketchQuery asks for sketches in [From, To) of a step's table.
type SketchQuery struct {
	Step     Step
	From, To int64
	Tenant   uint32
	Name     string
	Limit    int
}

// Retention says what Prune removes: rows that begin before an instant, in
// seconds since the epoch. Rows that were not rolled up yet stay.
type Retention struct {
	Minutes, Hours, Days int64
	// Refusals older than this, and the oldest beyond MaxRefusals.
	Refusals    int64
	MaxRefusals int
	// Nodes: the marks of nodes that wrote nothing since then.
	Nodes int64
}
