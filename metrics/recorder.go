package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforcement"
)

// Config of a Recorder; the zero value is usable.
type Config struct {
	// Version and Revision of the program, for headgate_build_info; default "unknown".
	Version, Revision string
	// Snapshot tells the state of the control plane's snapshot when it is
	// scraped; default: no such series.
	Snapshot func() SnapshotState
	// Redis tells the state of the shared limiter; default: no such series.
	Redis func() RedisState
}

// SnapshotState is what there is to know of the snapshot.
type SnapshotState struct {
	Loaded    bool
	Revision  int64
	Age       time.Duration // since the source last said that it is the newest
	Problems  int           // tenants, plans and keys that cannot be used as stored
	Held      bool          // a newer world waits for an operator
	Listening bool          // notifications are listened for
	Swaps     int64
	Tenants   int
	Keys      int
	Plans     int
}

// RedisState is what there is to know of the shared limiter.
type RedisState struct {
	Reachable   bool // the last call was answered
	BreakerOpen bool // calls are not tried, failure modes answer at once
}

// outcomes of a decision.
const (
	allowed = iota
	refused
	nOutcomes
)

var outcomeNames = [nOutcomes]string{"allowed", "refused"}

// reasonNames are those that have a counter; another one counts as "other", so
// that no text from elsewhere becomes a label.
var reasonNames = [...]string{
	string(enforcement.ReasonOK),
	string(enforcement.ReasonNoPolicy),
	string(enforcement.ReasonOverLimit),
	string(enforcement.ReasonCostExceedsQuota),
	string(enforcement.ReasonMissingAttribute),
	string(enforcement.ReasonTenantSuspended),
	string(enforcement.ReasonBatchRefused),
	string(enforcement.ReasonLimiterUnavailable),
	"other",
}

const nReasons = len(reasonNames)

// modes of a check that are counted.
const (
	modeEnforce = iota
	modeForce
	nModes
)

var modeNames = [nModes]string{enforcement.Enforce.String(), enforcement.Force.String()}

// A Recorder counts decisions. It is an enforcement.Recorder, and safe for any
// number of goroutines.
type Recorder struct {
	cfg       Config
	decisions [nOutcomes][nReasons][nModes]atomic.Uint64
	degraded  atomic.Uint64
	shadow    atomic.Uint64
	limiter   limiterCounts
	registry  *prometheus.Registry
}

// Record counts a decision once. Peeks do not count. It does not keep d.
func (r *Recorder) Record(d *enforcement.Decision) {
	mode := modeEnforce
	switch d.Check.Mode {
	case enforcement.Enforce:
	case enforcement.Force:
		mode = modeForce
	default:
		return
	}
	outcome := refused
	if d.Allowed {
		outcome = allowed
	}
	r.decisions[outcome][reasonIndex(d.Reason)][mode].Add(1)
	if d.Degraded {
		r.degraded.Add(1)
	}
	if d.Allowed && mode == modeEnforce && shadowRefuses(d) {
		r.shadow.Add(1)
	}
}

// shadowRefuses reports whether a shadow policy would have refused.
func shadowRefuses(d *enforcement.Decision) bool {
	for i := range d.Limits {
		l := &d.Limits[i]
		if !l.Allowed && l.Rule.Mode == enforcement.PolicyShadow {
			return true
		}
	}
	return false
}

func reasonIndex(reason enforcement.Reason) int {
	switch reason {
	case enforcement.ReasonOK:
		return 0
	case enforcement.ReasonNoPolicy:
		return 1
	case enforcement.ReasonOverLimit:
		return 2
	case enforcement.ReasonCostExceedsQuota:
		return 3
	case enforcement.ReasonMissingAttribute:
		return 4
	case enforcement.ReasonTenantSuspended:
		return 5
	case enforcement.ReasonBatchRefused:
		return 6
	case enforcement.ReasonLimiterUnavailable:
		return 7
	}
	return nReasons - 1
}
