package views

import (
	"context"
	"time"
)

type zoneKey struct{}

// WithZone returns a context with the time zone in which pages show times.
func WithZone(ctx context.Context, zone *time.Location) context.Context {
	return context.WithValue(ctx, zoneKey{}, zone)
}

// Zone returns the time zone in which pages show times. The default is UTC.
func Zone(ctx context.Context) *time.Location {
	if zone, ok := ctx.Value(zoneKey{}).(*time.Location); ok {
		return zone
	}
	return time.UTC
}

// InZone returns an instant in the time zone of the page, with the name of the zone:
// "2 Jan 15:04 UTC", "2 Jan 16:04 Europe/Berlin".
func InZone(ctx context.Context, t time.Time, layout string) string {
	return t.In(Zone(ctx)).Format(layout) + " " + Zone(ctx).String()
}

// A ZoneChoice is the form in which the visitor chooses a time zone. Name is the zone of the
// page. Options are the zones that the server suggests; the script adds that of the browser.
type ZoneChoice struct {
	Name, Chosen string
	Options      []Option
}
