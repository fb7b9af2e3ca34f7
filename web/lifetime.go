package web

import (
	"net/url"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web/views"
)

// A Lifetime is a length of time that something may have.
type Lifetime struct {
	Value, Label string
	Length       time.Duration
}

// EndingField is the field of an end. optional says what stands for none; "": it
// must end. chosen is the length that is offered first.
func EndingField(optional, chosen string, lives ...Lifetime) views.Ending {
	e := views.Ending{
		Life: views.Select{Name: "life", Label: "Ends", Value: chosen},
		Until: views.Input{
			Name: "until", Label: "At (UTC)", Type: "datetime-local", Optional: true,
			Hint: "Counts when Ends is “at a time”.",
		},
	}
	if optional != "" {
		e.Life.Options = append(e.Life.Options, views.Option{Value: "never", Label: optional})
	}
	for _, l := range lives {
		e.Life.Options = append(e.Life.Options, views.Option{Value: l.Value, Label: l.Label})
	}
	e.Life.Options = append(e.Life.Options, views.Option{Value: "at", Label: "at a time"})
	return e
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

// ParseEnding reads when something ends; zero: never, if that is offered.
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
	at, err := time.Parse(RangeForm, e.Until.Value)
	if err != nil {
		return time.Time{}, problem.At("/until", "must be a time like 2026-11-21T09:30, in UTC")
	}
	return at, nil
}

// EndingFieldName is where a fault of an end stands.
func EndingFieldName(e views.Ending) string {
	if e.Life.Value == "at" {
		return "until"
	}
	return "life"
}
