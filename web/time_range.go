package web

import (
	"cmp"
	"maps"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/web/views"
)

// A TimeRange is the period that a page shows. The address selects it in one of two ways: the
// parameter range names a preset, or from and to have the two times. The parameter tz names the
// time zone of from and to; the default is UTC.
type TimeRange struct {
	Preset   string // "" for a custom time
	From, To time.Time
	Zone     *time.Location // time zone in which the page shows times; nil: UTC
	Live     bool
	Fault    string // what is wrong with the times in the address; "": nothing
	// Longest is how long the data of the page are stored. 0 means as long as counts are stored.
	// AtMost sets it. Note says that the page shows a shorter period than the address selects;
	// otherwise it is "".
	Longest time.Duration
	Note    string
}

// A Preset is a period of fixed length that ends now.
type Preset struct {
	Name, Label string
	Length      time.Duration
	// every is the interval at which a live page with this preset is updated.
	every time.Duration
}

const Day = 24 * time.Hour

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
	RangeForm     = "2006-01-02T15:04" // the form of an input of type datetime-local
	offsetForm    = RangeForm + "Z07:00"
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

// ParseTimeRange returns the period that the parameters of an address select. If they are
// invalid, it sets Fault and returns the default period. zone is the time zone in which the page
// shows times.
func ParseTimeRange(q url.Values, now time.Time, zone *time.Location) TimeRange {
	now = now.UTC()
	s := TimeRange{Preset: q.Get("range"), Live: q.Get("live") != "0", Zone: zone}
	if q.Get("from") != "" || q.Get("to") != "" {
		if s.SetCustom(q, now); s.Fault == "" {
			return s
		}
	}
	p, known := PresetNamed(s.Preset)
	if !known {
		if s.Preset != "" && s.Fault == "" {
			s.Fault = "No range has this name."
		}
		p, _ = PresetNamed(DefaultPreset)
	}
	s.Preset, s.From, s.To = p.Name, now.Add(-p.Length), now
	return s
}

// SetCustom sets a period from the parameters from, to and tz, or sets Fault if they are invalid.
func (s *TimeRange) SetCustom(q url.Values, now time.Time) {
	zone, known := LoadZone(cmp.Or(q.Get(ZoneParam), "UTC"))
	if !known {
		s.Fault = "No time zone has this name. Use a name such as Europe/Berlin."
		return
	}
	var err1, err2 error
	s.From, err1 = parseFormTime(q.Get("from"), zone)
	s.To, err2 = parseFormTime(q.Get("to"), zone)
	switch {
	case err1 != nil || err2 != nil:
		s.Fault = "Enter both times as 2026-11-21T09:30, in " + zone.String() + "."
	case !s.To.After(s.From):
		s.Fault = "The end must be after the start."
	case s.To.Sub(s.From) > longestSpan:
		s.Fault = "A range has at most three years."
	case s.From.After(now):
		s.Fault = "The start is in the future."
	default:
		s.Preset, s.Live = "", false
	}
}

// parseFormTime parses a time from an address or a form. A time without an offset is in the
// given zone.
func parseFormTime(text string, zone *time.Location) (time.Time, error) {
	if t, err := time.Parse(offsetForm, text); err == nil {
		return t.UTC(), nil
	}
	t, err := time.ParseInLocation(RangeForm, text, zone)
	return t.UTC(), err
}

// formTime formats a time for an address or a form. When the clock is set back, a time of day
// occurs twice in the zone. For such a time, formTime adds the offset from UTC.
func formTime(t time.Time, zone *time.Location) string {
	text := t.In(zone).Format(RangeForm)
	if back, err := time.ParseInLocation(RangeForm, text, zone); err != nil || !back.Equal(t.Truncate(time.Minute)) {
		return t.In(zone).Format(offsetForm)
	}
	return text
}

// AtMost returns the period for a page whose data are stored only for the duration longest. If
// the preset of s is longer than that, it returns the longest preset that fits.
func (s TimeRange) AtMost(longest time.Duration, now time.Time) TimeRange {
	s.Longest = longest
	if s.Fault != "" || !s.From.Before(now.Add(-longest-time.Minute)) {
		return s
	}
	s.Note = "Headgate keeps these data for " + views.Duration(longest).Text + ". The page does not go further back."
	for _, p := range presets {
		if s.Preset != "" && p.Length <= longest {
			s.Preset, s.From, s.To = p.Name, now.UTC().Add(-p.Length), now.UTC()
		}
	}
	return s
}

func (s TimeRange) zone() *time.Location { return cmp.Or(s.Zone, time.UTC) }

// In returns the instant t in the time zone of the page.
func (s TimeRange) In(t time.Time) time.Time { return t.In(s.zone()) }

// TimeRange reads the period from the address of a page, in the time zone of the page.
func (w *Shell) TimeRange(c echo.Context) TimeRange {
	return ParseTimeRange(c.QueryParams(), w.Now(), views.Zone(c.Request().Context()))
}

// Query returns the query for the counts of the tenant that has this number. The number 0 selects
// all tenants.
func (s TimeRange) Query(tenant uint32) metrics.Query {
	return metrics.Query{Tenant: tenant, From: s.From, To: s.To}
}

// Interval returns how often a live page is updated.
func (s TimeRange) Interval() time.Duration {
	if p, ok := PresetNamed(s.Preset); ok {
		return p.every
	}
	return time.Minute
}

// Values returns the query parameters that select the period.
func (s TimeRange) Values() url.Values {
	v := url.Values{}
	if name := s.zone().String(); name != "UTC" {
		v.Set(ZoneParam, name)
	}
	if s.Preset == "" {
		v.Set("from", formTime(s.From, s.zone()))
		v.Set("to", formTime(s.To, s.zone()))
		return v
	}
	if s.Preset != DefaultPreset {
		v.Set("range", s.Preset)
	}
	return v
}

// Hidden returns the parameters from Values as hidden fields of a form.
func (s TimeRange) Hidden() []views.Hidden {
	var list []views.Hidden
	for name, values := range s.Values() {
		list = append(list, views.Hidden{Name: name, Value: values[0]})
	}
	return list
}

// Address returns the address of a page with this period and the parameters in also. It leaves
// out parameters that have no value.
func (s TimeRange) Address(path string, also url.Values) string {
	v := s.Values()
	for name, values := range also {
		if len(values) > 0 && values[0] != "" {
			v.Set(name, values[0])
		}
	}
	return AppendQuery(path, v)
}

// SpanWords returns a period as English text.
func SpanWords(from, to time.Time, zone *time.Location) string {
	return from.In(zone).Format("2 Jan 2006 15:04") + " to " + to.In(zone).Format("2 Jan 2006 15:04 ") + zone.String()
}

// With returns a query with one parameter changed. The value "" removes the parameter.
func With(q url.Values, name, value string) url.Values {
	out := url.Values{}
	maps.Copy(out, q)
	if out.Del(name); value != "" {
		out.Set(name, value)
	}
	return out
}

// Picker returns the view with which the visitor chooses the period. also contains the other
// parameters of the page. streams says that the page can have live updates.
func (s TimeRange) Picker(path string, also url.Values, streams bool) views.Ranges {
	r := views.Ranges{
		Action: path, Error: s.Fault, Note: s.Note, Zone: s.zone().String(),
		From: s.In(s.From).Format(RangeForm), To: s.In(s.To).Format(RangeForm),
	}
	if r.Zone != "UTC" {
		r.Hidden = append(r.Hidden, views.Hidden{Name: ZoneParam, Value: r.Zone})
	}
	for _, p := range presets {
		if s.Longest > 0 && p.Length > s.Longest {
			break
		}
		other := TimeRange{Preset: p.Name, Zone: s.Zone}
		r.Presets = append(r.Presets, views.RangeLink{
			Text: p.Name, Label: p.Label, URL: other.Address(path, also), Current: p.Name == s.Preset && s.Fault == "",
		})
	}
	for name, values := range also {
		if len(values) > 0 && values[0] != "" {
			r.Hidden = append(r.Hidden, views.Hidden{Name: name, Value: values[0]})
		}
	}
	r.Shown = SpanWords(s.From, s.To, s.zone())
	if p, is := PresetNamed(s.Preset); is {
		r.Shown = p.Label
	}
	if !streams || s.Preset == "" {
		return r
	}
	if s.Live {
		r.PauseURL = s.Address(path, With(also, "live", "0"))
	} else {
		r.LiveURL = s.Address(path, With(also, "live", ""))
	}
	return r
}
