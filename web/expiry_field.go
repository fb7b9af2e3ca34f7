package web

import (
	"net/url"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// A Lifetime is a duration that a form offers as a choice, for example for how long a key is
// valid.
type Lifetime struct {
	Value, Label string
	Length       time.Duration
}

var (
	ShortLifetimes = []Lifetime{
		{"1h", "in an hour", time.Hour},
		{"24h", "in 24 hours", Day},
		{"7d", "in 7 days", 7 * Day},
		{"30d", "in 30 days", 30 * Day},
		{"90d", "in 90 days", 90 * Day},
	}
	KeyLives = []Lifetime{{"30d", "in 30 days", 30 * Day}, {"90d", "in 90 days", 90 * Day}, {"365d", "in a year", 365 * Day}}
)

// LifetimeOptions returns the options of a Select for the durations in lives.
func LifetimeOptions(lives []Lifetime) []views.Option {
	var list []views.Option
	for _, l := range lives {
		list = append(list, views.Option{Value: l.Value, Label: l.Label})
	}
	return list
}

// EndingField returns the form field with which the visitor chooses an expiry time. optional is
// the label of the choice that means no expiry; if it is "", there is no such choice. chosen is
// the preselected choice. The visitor enters a time in the time zone of the page.
func EndingField(c echo.Context, optional, chosen string, lives ...Lifetime) views.Ending {
	zone := views.Zone(c.Request().Context())
	e := views.Ending{
		Life:  views.Select{Name: "life", Label: "Ends", Value: chosen, Options: LifetimeOptions(lives)},
		Until: views.OptionalInput("until", "At ("+zone.String()+")", "", "Used if Ends is “at a time”."),
		Zone:  zone,
	}
	e.Until.Type, e.Until.Autocomplete = "datetime-local", ""
	if optional != "" {
		e.Life.Options = slices.Insert(e.Life.Options, 0, views.Option{Value: "never", Label: optional})
	}
	e.Life.Options = append(e.Life.Options, views.Option{Value: "at", Label: "at a time"})
	return e
}

// ParseEnding returns the expiry time in the form f. It returns the zero time for no expiry. It
// also stores the entered texts in e, so that the form can be shown again.
func ParseEnding(f url.Values, e *views.Ending, now time.Time, lives []Lifetime) (time.Time, error) {
	e.Life.Value, e.Until.Value = f.Get("life"), f.Get("until")
	if !slices.ContainsFunc(e.Life.Options, func(o views.Option) bool { return o.Value == e.Life.Value }) {
		return time.Time{}, problem.At("/life", "must be one of the list")
	}
	if i := slices.IndexFunc(lives, func(l Lifetime) bool { return l.Value == e.Life.Value }); i >= 0 {
		return now.Add(lives[i].Length), nil
	}
	if e.Life.Value != "at" {
		return time.Time{}, nil
	}
	at, err := parseFormTime(e.Until.Value, e.Zone)
	if err != nil {
		return time.Time{}, problem.At("/until", "must be a time like 2026-11-21T09:30, in %s", e.Zone)
	}
	return at, nil
}
