package alerts

import "time"

// A Phase is the phase of a rule.
type Phase string

const (
	OK      Phase = "ok"      // the figure is below the threshold
	Pending Phase = "pending" // at or above the threshold, for less than Document.For
	Firing  Phase = "firing"  // the alert has begun and has not ended
)

// A State is what is known of a rule between two evaluations. The zero State is OK.
type State struct {
	Phase Phase `json:"phase,omitempty"`
	// Since is when the phase began.
	Since time.Time `json:"since,omitzero"`
	// ClearSince is since when a firing rule's figure is below its recovery threshold.
	ClearSince time.Time `json:"clear_since,omitzero"`
	// Value is the newest figure, At its time, and Peak the worst figure of the incident.
	Value float64   `json:"value"`
	Peak  float64   `json:"peak,omitempty"`
	At    time.Time `json:"at,omitzero"`
	// Incident is the ID of the open incident while Phase is Firing.
	Incident string `json:"incident,omitempty"`
	// Announced is set when the messages about the begin of the incident are queued. A muted
	// rule queues them when it is no longer muted.
	Announced bool `json:"announced,omitempty"`
	// Err says why the figure is not known. The phase then stays as it was.
	Err string `json:"err,omitempty"`
	// Detail is a sentence about the figure, such as when the quota is used up.
	Detail string `json:"detail,omitempty"`
}

// A Change is what a step does to the incident of a rule.
type Change uint8

const (
	Nothing  Change = iota
	Began           // the alert begins
	Resolved        // the alert ends
)

// Step advances a state with a figure. A disabled rule is OK, and its alert ends.
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
	// With equal thresholds, an alert ends below them; a recovery of 0 is reached at 0.
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

// reaches reports whether a figure is as bad as a threshold, or worse.
func (d *Document) reaches(value, threshold float64) bool {
	if d.Metric.BeginsBelow() {
		return value <= threshold
	}
	return value >= threshold
}

// worse returns the worse of two figures.
func (d *Document) worse(a, b float64) float64 {
	if d.reaches(a, b) {
		return a
	}
	return b
}

// clear ends the alert, if there is one.
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

// writeEvery is how often a state is written while only its figure changes.
const writeEvery = time.Minute

// worthWriting reports whether a new state is written. A figure alone is written once a
// minute, so that thousands of rules cause few writes.
func (s State) worthWriting(before *State) bool {
	if s.At.Sub(before.At) >= writeEvery {
		return true
	}
	s.Value, s.At, s.Detail = before.Value, before.At, before.Detail
	return s != *before
}
