package web

import (
	"net/url"
	"time"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web/views"
)

// A span is the time that a page is about, as its address says it: range is one
// of the presets, or from and to, both in UTC.
type span struct {
	preset   string // "" for an own time
	from, to time.Time
	live     bool
	fault    string // what is wrong with the time that was asked for
}

// A preset is a time up to now.
type preset struct {
	name, label string
	length      time.Duration
	// every is how often a live page of it is drawn anew.
	every time.Duration
}

const day = 24 * time.Hour

// presets from a quarter of an hour to 90 days.
var presets = []preset{
	{"15m", "The last 15 minutes", 15 * time.Minute, time.Second},
	{"1h", "The last hour", time.Hour, time.Second},
	{"6h", "The last 6 hours", 6 * time.Hour, 5 * time.Second},
	{"24h", "The last 24 hours", day, 10 * time.Second},
	{"7d", "The last 7 days", 7 * day, 30 * time.Second},
	{"30d", "The last 30 days", 30 * day, time.Minute},
	{"90d", "The last 90 days", 90 * day, time.Minute},
}

const (
	defaultPreset = "1h"
	rangeForm     = "2006-01-02T15:04" // of a field of type datetime-local
	longestSpan   = 3 * 366 * day
)

func presetNamed(name string) (preset, bool) {
	for _, p := range presets {
		if p.name == name {
			return p, true
		}
	}
	return preset{}, false
}

// spanOf reads the time of an address. What it cannot read is told in fault, and
// the default is shown.
func spanOf(q url.Values, now time.Time) span {
	now = now.UTC()
	s := span{preset: q.Get("range"), live: q.Get("live") != "0"}
	if q.Get("from") != "" || q.Get("to") != "" {
		if s.own(q.Get("from"), q.Get("to"), now); s.fault == "" {
			return s
		}
	}
	p, known := presetNamed(s.preset)
	if !known {
		if s.preset != "" && s.fault == "" {
			s.fault = "There is no range of this name."
		}
		p, _ = presetNamed(defaultPreset)
	}
	s.preset, s.from, s.to = p.name, now.Add(-p.length), now
	return s
}

// own reads a time of the reader's own.
func (s *span) own(from, to string, now time.Time) {
	var err1, err2 error
	s.from, err1 = time.Parse(rangeForm, from)
	s.to, err2 = time.Parse(rangeForm, to)
	switch {
	case err1 != nil || err2 != nil:
		s.fault = "Give both times as 2026-11-21T09:30, in UTC."
	case !s.to.After(s.from):
		s.fault = "The end must be after the beginning."
	case s.to.Sub(s.from) > longestSpan:
		s.fault = "A range has at most three years."
	case s.from.After(now):
		s.fault = "The beginning is in the future."
	default:
		s.preset, s.live = "", false
	}
}

// query is what Analytics is asked for a tenant's number; 0: all together.
func (s span) query(tenant uint32) metrics.Query {
	return metrics.Query{Tenant: tenant, From: s.from, To: s.to}
}

// every is how often the page is drawn anew while it is live.
func (s span) every() time.Duration {
	if p, ok := presetNamed(s.preset); ok {
		return p.every
	}
	return time.Minute
}

// values are the parts of the address that say the time.
func (s span) values() url.Values {
	v := url.Values{}
	if s.preset == "" {
		v.Set("from", s.from.Format(rangeForm))
		v.Set("to", s.to.Format(rangeForm))
		return v
	}
	if s.preset != defaultPreset {
		v.Set("range", s.preset)
	}
	return v
}

// address is a page with this time and with other parts of its query. Parts
// without a value are left out.
func (s span) address(path string, also url.Values) string {
	v := s.values()
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

// ranges is where the reader chooses the time. also are the other parts of the
// page's address; streams tells that the page can be live.
func (s span) ranges(path string, also url.Values, streams bool) views.Ranges {
	r := views.Ranges{Action: path, Error: s.fault, From: s.from.Format(rangeForm), To: s.to.Format(rangeForm)}
	for _, p := range presets {
		other := span{preset: p.name}
		r.Presets = append(r.Presets, views.RangeLink{
			Text: p.name, Label: p.label, URL: other.address(path, also), Current: p.name == s.preset && s.fault == "",
		})
	}
	for name, values := range also {
		if len(values) > 0 && values[0] != "" {
			r.Hidden = append(r.Hidden, views.Hidden{Name: name, Value: values[0]})
		}
	}
	if r.Shown = s.from.Format("2 Jan 2006 15:04") + " to " + s.to.Format("2 Jan 2006 15:04 UTC"); s.preset != "" {
		p, _ := presetNamed(s.preset)
		r.Shown = p.label
	}
	if !streams || s.preset == "" {
		return r
	}
	with := url.Values{}
	for name, values := range also {
		with[name] = values
	}
	if s.live {
		with.Set("live", "0")
		r.PauseURL = s.address(path, with)
	} else {
		with.Del("live")
		r.LiveURL = s.address(path, with)
	}
	return r
}
