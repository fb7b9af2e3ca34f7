package metrics

import (
	"slices"
	"time"
)

// The store has two kinds of rows. Each row has a tenant number; number 0 stands for all tenants
// together.
//
// - A row of counts. The store adds the counts of a batch to the stored row.
// - A row with a sketch: a small summary of a minute, such as its top keys or a histogram. Each
// node has its own row for a minute, and each write replaces the whole row.

// A Step is the time that one stored row covers: a minute, an hour, or a day.
type Step string

// The steps. A roll-up computes the rows of an hour from rows of minutes, and the rows of a day
// from rows of hours. Days start at midnight UTC.
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

// A Kind says whether a row counts the decisions of a whole tenant, a route, or a policy.
type Kind string

// The kinds of rows.
const (
	KindTotal Kind = "total" // each decision of the tenant counts once; Name is ""
	KindRoute Kind = "route" // each decision counts once; Name is the most specific route pattern that matches, or "(none)"
	// KindPolicy counts each decision once for each policy that applied. If several limits denied
	// the request, the limit with the longest retry time caused the denial. Only the policy of this
	// limit counts the denial as its own.
	KindPolicy Kind = "policy"
)

// A CountKey identifies a row of counts.
type CountKey struct {
	At     int64  // start of the step, in seconds since the epoch
	Tenant uint32 // number of the tenant; 0 is the sum over all tenants
	Kind   Kind
	Name   string
}

// Counts are numbers of decisions. Each decision is counted in Requests and in exactly one of the
// fields from OK to Unavailable. Checks in mode peek are not counted.
type Counts struct {
	Requests int64
	// Allowed decisions, by reason.
	OK, Listed, Unmatched int64
	// OverLimit and NeverFits are denials by limits, with the reasons over_limit and
	// cost_exceeds_quota. Their sum divided by Requests is the rate of 429 responses. In the
	// row of a policy, these fields count only the denials that this policy's limits caused.
	// OtherPolicy counts the denials that another policy caused; in other rows it is 0.
	OverLimit, NeverFits, OtherPolicy int64
	// Other denials, by reason.
	Blocked, DeniedByList, MissingAttribute, DeniedUnmatched, Suspended, BatchRefused, Unavailable int64
	// The following fields count properties of decisions. Each of these decisions is also counted
	// in one of the fields above.
	Forced int64 // checks with mode force
	// ShadowRefused counts decisions that allowed a request although it was over a limit, because
	// the policy of the limit has the mode shadow, degrade or delay. The row of a policy counts
	// only requests over a limit of this policy.
	ShadowRefused int64
	Degraded      int64 // decisions by a failure mode, because the limiter was unavailable
	Local         int64 // part of Degraded that the node's own limiter decided; the rest was allowed or denied without a limiter
	// Cost is the sum of the costs that allowed decisions charged to limits.
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

// Columns are the names of the database columns for the fields of Counts, in the order of Fields.
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

// FieldsOf returns pointers to the fields whose columns have the given names. It returns false if
// Columns does not have one of the names.
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
