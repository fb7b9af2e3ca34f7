package views

import (
	"context"
	"time"
)

type zoneKey struct{}

// WithZone returns a context for rendering a page. The page then shows times in the given time
// zone.
func WithZone(ctx context.Context, zone *time.Location) context.Context {
	return context.WithValue(ctx, zoneKey{}, zone)
}

// Zone returns the time zone in which the page shows times. Without a zone from WithZone, it
// returns UTC.
func Zone(ctx context.Context) *time.Location {
	if zone, ok := ctx.Value(zoneKey{}).(*time.Location); ok {
		return zone
	}
	return time.UTC
}

// InZone formats a time in the time zone of the page, and adds the name of the zone: "2 Jan
// 15:04 UTC", "2 Jan 16:04 Europe/Berlin".
func InZone(ctx context.Context, t time.Time, layout string) string {
	return t.In(Zone(ctx)).Format(layout) + " " + Zone(ctx).String()
}

// A ZoneChoice is the form with which the visitor selects a time zone. Name is the present time
// zone of the page. Options are the time zones that the server offers. The script adds the zone
// of the browser.
type ZoneChoice struct {
	Name, Chosen string
	Options      []Option
}
