package sharing

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

func TestZoneOfALink(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for zone, want := range map[string]string{
		"UTC": "", "Europe/Berlin": "", "": "/time_zone", "Local": "/time_zone", "Mars/Olympus": "/time_zone",
		// Not every node knows these names.
		"localtime": "/time_zone", "posixrules": "/time_zone", "posix/Europe/Berlin": "/time_zone", "right/UTC": "/time_zone",
	} {
		d := Document{Name: "Lobby", Kind: Display, Page: Overview, Zone: zone, ExpiresAt: now.Add(time.Hour)}
		var f problem.Fields
		d.validate(&f, true, now)
		got := ""
		for _, fault := range f {
			got += fault.Pointer
		}
		if got != want {
			t.Errorf("%q: faults at %q, want %q", zone, got, want)
		}
	}
}
