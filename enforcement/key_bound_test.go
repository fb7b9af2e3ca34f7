package enforcement_test

import (
	"testing"

	"github.com/headgate/headgate/enforcement"
)

func TestKeyRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ bound, others, room, most int64 }{
		{6400, 0, 6400, 8000},
		{6400, 6000, 400, 2000},
		{6400, 6350, 100, 1650}, // the reserve is more than what is left
		{6400, 6400, 100, 1600},
		{6400, 7900, 100, 100},
		{6400, 7950, 50, 50}, // until the tenant exceeds its bound by a quarter
		{6400, 8000, 0, 0},
		{6400, 9000, 0, 0},
		{63, 63, 0, 15}, // no reserve
	} {
		if room, most := enforcement.KeyRoom(c.bound, c.others); room != c.room || most != c.most {
			t.Errorf("KeyRoom(%d, %d) = %d, %d, want %d, %d", c.bound, c.others, room, most, c.room, c.most)
		}
	}
}
