package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// The outcomes of a decision. They are indexes of tallies.decisions.
const (
	allowed = iota
	refused
	nOutcomes
)

var outcomeNames = [nOutcomes]string{"allowed", "refused"}

func outcomeIndex(d *enforcement.Decision) int {
	if d.Allowed {
		return allowed
	}
	return refused
}

// reasonNames are the reasons that have their own counter. Any other reason is counted as "other",
// so that the set of label values never grows.
var reasonNames = [...]string{
	string(enforcement.ReasonOK),
	string(enforcement.ReasonAllowedByList),
	string(enforcement.ReasonNoPolicy),
	string(enforcement.ReasonOverLimit),
	string(enforcement.ReasonCostExceedsQuota),
	string(enforcement.ReasonBlocked),
	string(enforcement.ReasonDeniedByList),
	string(enforcement.ReasonMissingAttribute),
	string(enforcement.ReasonTenantSuspended),
	string(enforcement.ReasonBatchRefused),
	string(enforcement.ReasonLimiterUnavailable),
	"other",
}

const nReasons = len(reasonNames)

func reasonIndex(reason enforcement.Reason) int {
	if i := slices.Index(reasonNames[:nReasons-1], string(reason)); i >= 0 {
		return i
	}
	return nReasons - 1
}

// The modes of a check that are counted. They are indexes of tallies.decisions.
const (
	modeEnforce = iota
	modeForce
	nModes
)

var modeNames = [nModes]string{enforcement.Enforce.String(), enforcement.Force.String()}

// tallies are the Prometheus counters of a shard. They are never reset. Only the goroutine that
// holds the shard adds to them; any goroutine may read them.
type tallies struct {
	decisions [nOutcomes][nReasons][nModes]atomic.Uint64
	degraded  atomic.Uint64
	shadow    atomic.Uint64
	degrade   atomic.Uint64
	delay     atomic.Uint64
	unmatched [nCauses]atomic.Uint64
	wires     [enforcement.NumWires][nOutcomes]atomic.Uint64
}

// The causes for which no policy matched a check: the tenant has no plan, or no policy of the plan
// matches. They are indexes of tallies.unmatched.
const (
	noPlan = iota
	noMatch
	nCauses
)

var causeNames = [nCauses]string{"no_plan", "no_match"}

// tally adds one decision to the counters of t. mode is the index of the check's mode.
func (t *tallies) tally(d *enforcement.Decision, o *outcome, mode int) {
	outcome := outcomeIndex(d)
	t.decisions[outcome][reasonIndex(d.Reason)][mode].Add(uint64(o.requests))
	t.wires[d.Check.Wire][outcome].Add(uint64(o.requests))
	if o.degraded {
		t.degraded.Add(1)
	}
	if o.shadow {
		t.shadow.Add(1)
	}
	if o.degrade {
		t.degrade.Add(1)
	}
	if o.delay {
		t.delay.Add(1)
	}
	if d.Reason == enforcement.ReasonNoPolicy {
		cause := noMatch
		if d.Subject.Plan == nil {
			cause = noPlan
		}
		t.unmatched[cause].Add(1)
	}
}

// totals are the sums of the tallies of all shards.
type totals struct {
	decisions        [nOutcomes][nReasons][nModes]uint64
	degraded, shadow uint64
	degrade, delay   uint64
	unmatched        [nCauses]uint64
	wires            [enforcement.NumWires][nOutcomes]uint64
}

func (t *totals) add(o *tallies) {
	for outcome := range nOutcomes {
		for reason := range nReasons {
			for mode := range nModes {
				t.decisions[outcome][reason][mode] += o.decisions[outcome][reason][mode].Load()
			}
		}
	}
	t.degraded += o.degraded.Load()
	t.shadow += o.shadow.Load()
	t.degrade += o.degrade.Load()
	t.delay += o.delay.Load()
	for cause := range nCauses {
		t.unmatched[cause] += o.unmatched[cause].Load()
	}
	for wire := range t.wires {
		for outcome := range nOutcomes {
			t.wires[wire][outcome] += o.wires[wire][outcome].Load()
		}
	}
}

// maxTenantSeries is the maximum number of tenants that have their own Prometheus series.
const maxTenantSeries = 20

// A tenantTally counts the decisions of one tenant that has its own Prometheus series.
type tenantTally struct {
	decisions [nOutcomes]atomic.Uint64 // by outcome
	unmatched atomic.Uint64            // checks that matched no policy
}

// tenantSeries returns an empty tenantTally for each of the slugs, up to maxTenantSeries.
func tenantSeries(slugs []string) map[string]*tenantTally {
	series := make(map[string]*tenantTally)
	for _, slug := range slugs {
		if len(series) < maxTenantSeries && series[slug] == nil {
			series[slug] = new(tenantTally)
		}
	}
	return series
}
