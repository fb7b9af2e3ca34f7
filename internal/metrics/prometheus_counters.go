package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate/enforcement"
)

// outcomes of a decision.
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

// reasonNames are those that have a counter; another one counts as "other", so
// that no text from elsewhere becomes a label.
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

// modes of a check that are counted.
const (
	modeEnforce = iota
	modeForce
	nModes
)

var modeNames = [nModes]string{enforcement.Enforce.String(), enforcement.Force.String()}

// tallies are the counters of a shard since the start, for Prometheus. Only the holder of the
// shard adds; anybody may read.
type tallies struct {
	decisions [nOutcomes][nReasons][nModes]atomic.Uint64
	degraded  atomic.Uint64
	shadow    atomic.Uint64
}

// tally counts a decision.
func (t *tallies) tally(d *enforcement.Decision, o *outcome, mode int) {
	t.decisions[outcomeIndex(d)][reasonIndex(d.Reason)][mode].Add(1)
	if o.degraded {
		t.degraded.Add(1)
	}
	if o.shadow {
		t.shadow.Add(1)
	}
}

// totals are tallies added up.
type totals struct {
	decisions        [nOutcomes][nReasons][nModes]uint64
	degraded, shadow uint64
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
}

// maxTenantSeries is the largest number of tenants with their own series.
const maxTenantSeries = 20

// tenantTally counts the decisions of one tenant by outcome.
type tenantTally [nOutcomes]atomic.Uint64

// tenantSeries returns the counters of the named tenants.
func tenantSeries(slugs []string) map[string]*tenantTally {
	series := make(map[string]*tenantTally)
	for _, slug := range slugs {
		if len(series) < maxTenantSeries && series[slug] == nil {
			series[slug] = new(tenantTally)
		}
	}
	return series
}
