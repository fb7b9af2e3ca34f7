package alerts

import (
	"maps"
	"time"
)

// A Phase says whether the alert of a rule is firing.
type Phase string

const (
	OK      Phase = "ok"      // the figure has not reached the threshold
	Pending Phase = "pending" // the figure has reached the threshold, but not yet for the duration Document.For
	Firing  Phase = "firing"  // the alert has begun and has not ended
)

// A State is the stored result of the last evaluation of a rule. The next evaluation continues
// from it. The zero State has the phase OK.
type State struct {
	Phase Phase `json:"phase,omitempty"`
	// Since is the time at which the phase began.
	Since time.Time `json:"since,omitzero"`
	// ClearSince is the time since which the figure of a firing rule has always been below
	// Recovery. It is zero if the figure is not below Recovery.
	ClearSince time.Time `json:"clear_since,omitzero"`
	// Value is the figure of the last evaluation that could measure it, and At is the time of that
	// evaluation. Peak is the worst figure since the beginning of the incident.
	Value float64   `json:"value"`
	Peak  float64   `json:"peak,omitempty"`
	At    time.Time `json:"at,omitzero"`
	// Incident is the ID of the open incident. It is set while Phase is Firing.
	Incident string `json:"incident,omitempty"`
	// Announced is set when the messages about the beginning of the incident are queued. While the
	// rule is muted or in a maintenance window, they are not queued.
	Announced bool `json:"announced,omitempty"`
	// Err says why the last evaluation could not measure the figure. It is "" if the evaluation
	// could measure it. An evaluation with an error does not change the phase.
	Err string `json:"err,omitempty"`
	// Detail is a sentence about the figure, such as when the quota is used up.
	Detail string `json:"detail,omitempty"`
	// Tenants has the states of the tenants of a rule with EachTenant, by slug. It contains only
	// tenants whose phase is not OK. The other fields are then a summary: the highest phase, and
	// the worst figure of the last evaluation.
	Tenants map[string]State `json:"tenants,omitempty"`
}

// Firing returns the number of tenants whose alert is firing.
func (s *State) Firing() (n int) {
	for _, t := range s.Tenants {
		if t.Phase == Firing {
			n++
		}
	}
	return n
}

// A Change says how one evaluation changes the incident of a rule.
type Change uint8

const (
	Nothing  Change = iota
	Began           // the alert begins
	Resolved        // the alert ends
)

// Step returns the state after an evaluation with the figure value at now. If the rule is
// disabled, its phase becomes OK and its alert ends.
func (d *Document) Step(s State, value float64, now time.Time) (State, Change) {
	s.Value, s.At, s.Err = value, now, ""
	switch {
	case d.Disabled:
		return d.clear(s, now)
	case s.Phase == Firing:
		return d.stepFiring(s, now)
	case !d.reaches(value, d.Threshold):
		if s.Phase != OK {
			s.Phase, s.Since, s.Peak = OK, now, 0
		}
		return s, Nothing
	}
	if s.Phase != Pending {
		s.Phase, s.Since, s.Peak = Pending, now, value
	}
	s.Peak = d.worse(s.Peak, value)
	if now.Sub(s.Since) < d.For {
		return s, Nothing
	}
	s.Phase, s.Since = Firing, now
	return s, Began
}

func (d *Document) stepFiring(s State, now time.Time) (State, Change) {
	s.Peak = d.worse(s.Peak, s.Value)
	// The alert continues while the figure reaches Recovery. If Recovery is 0, every figure reaches
	// it. In this case, the figure 0 ends the alert, except for a metric with BeginsBelow.
	if d.reaches(s.Value, d.Recovery) && (s.Value > 0 || d.Metric.BeginsBelow()) {
		s.ClearSince = time.Time{}
		return s, Nothing
	}
	if s.ClearSince.IsZero() {
		s.ClearSince = now
	}
	if now.Sub(s.ClearSince) < d.For {
		return s, Nothing
	}
	return d.clear(s, now)
}

// reaches reports whether a figure has reached a threshold: it is at least the threshold, or at
// most the threshold for a metric with BeginsBelow.
func (d *Document) reaches(value, threshold float64) bool {
	if d.Metric.BeginsBelow() {
		return value <= threshold
	}
	return value >= threshold
}

// worse returns the worse of two figures: the one that is farther beyond a threshold.
func (d *Document) worse(a, b float64) float64 {
	if d.reaches(a, b) {
		return a
	}
	return b
}

// clear returns s with the phase OK. If an alert was firing, the change is Resolved.
func (d *Document) clear(s State, now time.Time) (State, Change) {
	change := Nothing
	if s.Phase == Firing {
		change = Resolved
	}
	if s.Phase != OK {
		s.Phase, s.Since = OK, now
	}
	s.ClearSince = time.Time{}
	return s, change
}

// writeEvery is the time between two writes of a state in which only the figure changes.
const writeEvery = time.Minute

// worthWriting reports whether the new state s must be written; before is the stored state. If only
// the figure has changed, the state is written at most once a minute, so that thousands of rules
// cause few writes.
func (s State) worthWriting(before *State) bool {
	if s.At.Sub(before.At) >= writeEvery {
		return true
	}
	return !s.same(before)
}

// same reports whether two states are equal, except for the figure and its time.
func (s State) same(b *State) bool {
	return s.Phase == b.Phase && s.Since.Equal(b.Since) && s.ClearSince.Equal(b.ClearSince) && s.Peak == b.Peak &&
		s.Incident == b.Incident && s.Announced == b.Announced && s.Err == b.Err &&
		maps.EqualFunc(s.Tenants, b.Tenants, func(s, b State) bool { return s.same(&b) })
}
