package enforcement

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/internal/strictjson"
)

// A Fault is called with an error message for an invalid value that the type Policy cannot store, such as an unknown
// algorithm. pointer is the JSON pointer of the value.
type Fault func(pointer, message string)

const emptyWord = "must not be empty; leave it out for the default"

// ReadPolicy reads a policy from JSON. Unknown, duplicate and missing members are errors of the decoder. ReadPolicy
// reports an invalid value to fault if a Policy cannot store it. Policy.Validate reports all other invalid values.
func ReadPolicy(d *strictjson.Decoder, fault Fault) (p Policy) {
	at, slug, limits := d.Pointer(), false, false
	choices := p.Choices()
	for member := range d.Members() {
		switch member {
		case "slug":
			p.Slug, slug = d.Text(), true
		case "description":
			p.Description = d.Text()
		case "match":
			p.Match = readMatch(d)
		case "count_by":
			p.CountBy = readTexts(d)
		case "replaces":
			p.Replaces = readTexts(d)
		case "cost":
			cost := d.Int(math.MinInt64, math.MaxInt64)
			p.Cost = &cost
		case "cost_from":
			p.CostFrom = readWord(d, fault)
		case "delay_ms":
			if p.DelayMS = d.Int(math.MinInt64, math.MaxInt64); p.DelayMS == 0 && d.Err() == nil {
				fault(d.Pointer(), policyDelayRange)
			}
		case "reservation_expiry":
			p.ReservationExpiry = ReservationExpiry(readWord(d, fault))
		case "reservation_estimate":
			p.ReservationEstimate = ReservationEstimate(readWord(d, fault))
		case "limits":
			limits = true
			for range d.Elements() {
				p.Limits = append(p.Limits, readLimit(d, fault))
			}
		default:
			readChoice(d, fault, choices, member)
		}
	}
	requireMember(d, at, "slug", slug)
	requireMember(d, at, "limits", limits)
	return p
}

func readChoice(d *strictjson.Decoder, fault Fault, choices []Choice, member string) {
	for _, c := range choices {
		if c.Field == member {
			*c.Value = readWord(d, fault)
			return
		}
	}
	d.Unknown()
}

func readMatch(d *strictjson.Decoder) (m Match) {
	for member := range d.Members() {
		switch member {
		case "methods":
			m.Methods = readTexts(d)
		case "path":
			m.Path = d.Text()
		case "attributes":
			m.Attributes = map[string]string{}
			for name := range d.Members() {
				m.Attributes[name] = d.Text()
			}
		default:
			d.Unknown()
		}
	}
	return m
}

// readLimit reads a limit from JSON. It reports errors as ReadPolicy does.
func readLimit(d *strictjson.Decoder, fault Fault) Limit {
	r := limitReader{fault: fault}
	return r.read(d)
}

// ReadScenarioLimit reads a limit of a simulation scenario from JSON. The window of such a limit
// may also be given as window_ms, a number of milliseconds. windowAt is the JSON pointer of the
// window, relative to the limit.
func ReadScenarioLimit(d *strictjson.Decoder, fault Fault) (l Limit, windowAt string) {
	r := limitReader{fault: fault, scenario: true}
	l = r.read(d)
	if r.windowMS {
		return l, "/window_ms"
	}
	return l, "/window"
}

// A limitReader reads a limit from JSON and records which members it had.
type limitReader struct {
	fault                                             Fault
	scenario                                          bool // window_ms is allowed
	algorithm, quota, window, windowMS, burst, anchor bool
	rollover                                          bool
}

func (r *limitReader) read(d *strictjson.Decoder) (l Limit) {
	at := d.Pointer()
	for member := range d.Members() {
		r.member(d, member, &l)
	}
	requireMember(d, at, "algorithm", r.algorithm)
	requireMember(d, at, "quota", r.quota)
	switch {
	case !r.scenario:
		requireMember(d, at, "window", r.window)
	case !r.window && !r.windowMS:
		d.FailAt(at+"/window_ms", "is required, or window")
	case r.window && r.windowMS:
		d.FailAt(at+"/window", "only one of window and window_ms is allowed")
	}
	// burst, max_rollover and anchor must not be present with certain values. In a Limit, these values look the same as a
	// missing member, which is valid. So Validate cannot report such a member, and readLimit reports it here.
	if r.burst && l.Burst == 0 {
		r.fault(at+"/burst", burstRange)
	} else if r.burst && l.Algorithm != 0 && !l.Algorithm.Bucket() {
		r.fault(at+"/burst", burstMisplaced)
	}
	if r.anchor && l.Algorithm != 0 && !l.Algorithm.Windowed() {
		r.fault(at+"/anchor", anchorMisplaced)
	}
	if r.rollover && l.MaxRollover == 0 {
		r.fault(at+"/max_rollover", rolloverRange)
	}
	return l
}

func (r *limitReader) member(d *strictjson.Decoder, member string, l *Limit) {
	var known bool
	switch member {
	case "name":
		l.Name = readWord(d, r.fault)
	case "algorithm":
		name := d.Text()
		r.algorithm = true
		if l.Algorithm, known = ParseAlgorithm(name); !known {
			r.fault(d.Pointer(), algorithmFault)
		}
	case "quota":
		l.Quota, r.quota = d.Int(math.MinInt64, math.MaxInt64), true
	case "window":
		r.window = true
		anchor := l.Anchor
		if fault := l.ReadWindow(d.Text()); fault != "" {
			r.fault(d.Pointer(), fault)
		}
		if r.anchor {
			l.Anchor = anchor
		}
	case "burst":
		l.Burst, r.burst = d.Int(math.MinInt64, math.MaxInt64), true
	case "anchor":
		r.anchor = true
		if l.Anchor, known = ParseAnchor(d.Text()); !known {
			r.fault(d.Pointer(), anchorUnknown)
		}
	case "carry_over":
		if l.CarryOver, known = ParseCarryOver(d.Text()); !known {
			r.fault(d.Pointer(), carryOverUnknown)
		}
	case "max_rollover":
		l.MaxRollover, r.rollover = d.Int(math.MinInt64, math.MaxInt64), true
	case "durable":
		if l.Durability = NotDurable; d.Bool() {
			l.Durability = Durable
		}
	case "warn_at":
		r.warnAt(d, l)
	case "window_ms":
		if !r.scenario {
			d.Unknown()
			return
		}
		r.windowMS = true
		l.setWindow(d.Int(math.MinInt64, math.MaxInt64))
	default:
		d.Unknown()
	}
}

// setWindow sets the window to ms milliseconds. If ms is out of range, the product could overflow. The window then stays
// 0, and Validate rejects it.
func (l *Limit) setWindow(ms int64) {
	if ms > 0 && ms <= MaxWindow.Milliseconds() {
		l.Window = time.Duration(ms) * time.Millisecond
	}
}

// warnAt reads the thresholds of a limit.
func (r *limitReader) warnAt(d *strictjson.Decoder, l *Limit) {
	var list []int64
	for range d.Elements() {
		list = append(list, d.Int(math.MinInt64, math.MaxInt64))
	}
	var fault string
	if l.WarnAt, fault = NewWarnAt(list); fault != "" {
		r.fault(d.Pointer(), fault)
	}
}

// readWord reads a text that must not be empty. An empty text would stand for the default.
func readWord(d *strictjson.Decoder, fault Fault) string {
	s := d.Text()
	if s == "" && d.Err() == nil {
		fault(d.Pointer(), emptyWord)
	}
	return s
}

func readTexts(d *strictjson.Decoder) []string {
	out := []string{}
	for range d.Elements() {
		out = append(out, d.Text())
	}
	return out
}

// requireMember reports an error if present is false, which means that the JSON object at the pointer at does not have
// the member.
func requireMember(d *strictjson.Decoder, at, member string, present bool) {
	if !present {
		d.FailAt(at+"/"+member, "is required")
	}
}

// MarshalJSON returns the JSON form of a limit. It leaves out a burst of 0, and the anchor if the
// algorithm has none. It returns an error if the algorithm or the window has no JSON form.
func (l Limit) MarshalJSON() ([]byte, error) {
	out := struct {
		Name      string `json:"name"`
		Algorithm string `json:"algorithm"`
		Quota     int64  `json:"quota"`
		Window    string `json:"window"`
		Burst     int64  `json:"burst,omitempty"`
		Anchor    string `json:"anchor,omitempty"`
		WarnAt    WarnAt `json:"warn_at,omitzero"`
		Durable   *bool  `json:"durable,omitempty"`
		CarryOver string `json:"carry_over,omitempty"`
		Rollover  int64  `json:"max_rollover,omitempty"`
	}{Name: l.Name, Algorithm: l.Algorithm.String(), Quota: l.Quota, Window: l.WindowText(), WarnAt: l.WarnAt, Rollover: l.MaxRollover}
	if l.CarryOver != CarryKeep {
		out.CarryOver = l.CarryOver.String()
	}
	if l.Durability != DurableByWindow {
		durable := l.Durability == Durable
		out.Durable = &durable
	}
	if _, known := ParseAlgorithm(out.Algorithm); !known {
		return nil, fmt.Errorf("limit %s: unknown algorithm %d", l.Name, l.Algorithm)
	}
	if exact, err := ParseWindow(out.Window); l.Period == NoPeriod && (err != nil || exact != l.Window) {
		return nil, fmt.Errorf("limit %s: the window %v has no text", l.Name, l.Window)
	}
	if l.Algorithm.Bucket() {
		out.Burst = l.Burst
	}
	if l.Algorithm.Windowed() {
		out.Anchor = l.Anchor.String()
	}
	return MarshalJSON(out)
}

// MarshalJSON returns the JSON form of v without escapes for HTML.
func MarshalJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
