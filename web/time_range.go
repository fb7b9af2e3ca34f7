package web

import (
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web/views"
)

// A TimeRange is the time that a page is about, as its address says it: range is one
// of the presets, or from and to, both in UTC.
type TimeRange struct {
	Preset   string // "" for an own time
	From, To time.Time
	Live     bool
	Fault    string // what is wrong with the time that was asked for
}

// A Preset is a time up to now.
type Preset struct {
	Name, Label string
	Length      time.Duration
	// every is how often a live page of it is drawn anew.
	every time.Duration
}

const Day = 24 * time.Hour

// presets from a quarter of an hour to 90 days.
var presets = []Preset{
	{"15m", "The last 15 minutes", 15 * time.Minute, time.Second},
	{"1h", "The last hour", time.Hour, time.Second},
	{"6h", "The last 6 hours", 6 * time.Hour, 5 * time.Second},
	{"24h", "The last 24 hours", Day, 10 * time.Second},
	{"7d", "The last 7 days", 7 * Day, 30 * time.Second},
	{"30d", "The last 30 days", 30 * Day, time.Minute},
	{"90d", "The last 90 days", 90 * Day, time.Minute},
}

const (
	DefaultPreset = "1h"
	RangeForm     = "2006-01-02T15:04" // of a field of type datetime-local
	longestSpan   = 3 * 366 * Day
)

func PresetNamed(name string) (Preset, bool) {
	for _, p := range presets {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// ParseTimeRange reads the time of an address. What it cannot read is told in fault, and
// the default is shown.
func ParseTimeRange(q url.Values, now time.Time) TimeRange {
	now = now.UTC()
	s := TimeRange{Preset: q.Get("range"), Live: q.Get("live") != "0"}
	if q.Get("from") != "" || q.Get("to") != "" {
		if s.SetCustom(q.Get("from"), q.Get("to"), now); s.Fault == "" {
			return s
		}
	}
	p, known := PresetNamed(s.Preset)
	if !known {
		if s.Preset != "" && s.Fault == "" {
			s.Fault = "There is no range of this name."
		}
		p, _ = PresetNamed(DefaultPreset)
	}
	s.Preset, s.From, s.To = p.Name, now.Add(-p.Length), now
	return s
}

// SetCustom reads a time of the reader's own.
func (s *TimeRange) SetCustom(from, to string, now time.Time) {
	var err1, err2 error
	s.From, err1 = time.Parse(RangeForm, from)
	s.To, err2 = time.Parse(RangeForm, to)
	switch {
	case err1 != nil || err2 != nil:
		s.Fault = "Give both times as 2026-11-21T09:30, in UTC."
	case !s.To.After(s.From):
		s.Fault = "The end must be after the beginning."
	case s.To.Sub(s.From) > longestSpan:
		s.Fault = "A range has at most three years."
	case s.From.After(now):
		s.Fault = "The beginning is in the future."
	default:
		s.Preset, s.Live = "", false
	}
}

// Query is what Analytics is asked for a tenant's number; 0: all together.
func (s TimeRange) Query(tenant uint32) metrics.Query {
	return metrics.Query{Tenant: tenant, From: s.From, To: s.To}
}

// Interval is how often the page is drawn anew while it is live.
func (s TimeRange) Interval() time.Duration {
	if p, ok := PresetNamed(s.Preset); ok {
		return p.every
	}
	return time.Minute
}

// Values are the parts of the address that say the time.
func (s TimeRange) Values() url.Values {
	v := url.Values{}
	if s.Preset == "" {
		v.Set("from", s.From.Format(RangeForm))
		v.Set("to", s.To.Format(RangeForm))
		return v
	}
	if s.Preset != DefaultPreset {
		v.Set("range", s.Preset)
	}
	return v
}

// Address is a page with this time and with other parts of its query. Parts
// without a value are left out.
func (s TimeRange) Address(path string, also url.Values) string {
	v := s.Values()
	for name, values := range also {
		if len(values) > 0 && values[0] != "" {
			v.Set(name, values[0])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

// Picker is where the reader chooses the time. also are the other parts of the
// page's address; streams tells that the page can be live.
func (s TimeRange) Picker(path string, also url.Values, streams bool) views.Ranges {
	r := views.Ranges{Action: path, Error: s.Fault, From: s.From.Format(RangeForm), To: s.To.Format(RangeForm)}
	for _, p := range presets {
		other := TimeRange{Preset: p.Name}
		r.Presets = append(r.Presets, views.RangeLink{
			Text: p.Name, Label: p.Label, URL: other.Address(path, also), Current: p.Name == s.Preset && s.Fault == "",
		})
	}
	for name, values := range also {
		if len(values) > 0 && values[0] != "" {
			r.Hidden = append(r.Hidden, views.Hidden{Name: name, Value: values[0]})
		}
	}
	if r.Shown = s.From.Format("2 Jan 2006 15:04") + " to " + s.To.Format("2 Jan 2006 15:04 UTC"); s.Preset != "" {
		p, _ := PresetNamed(s.Preset)
		r.Shown = p.Label
	}
	if !streams || s.Preset == "" {
		return r
	}
	with := url.Values{}
	for name, values := range also {
		with[name] = values
	}
	if s.Live {
		with.Set("live", "0")
		r.PauseURL = s.Address(path, with)
	} else {
		with.Del("live")
		r.LiveURL = s.Address(path, with)
	}
	return r
}
