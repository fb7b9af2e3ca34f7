package retry_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/retry"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := retry.Backoff{First: 100 * time.Millisecond, Longest: 350 * time.Millisecond}
	for round := range 2 {
		for i, most := range []time.Duration{100, 200, 350, 350} {
			most *= time.Millisecond
			if got := b.Next(); got < most/2 || got > most {
				t.Errorf("round %d, wait %d: %v, want %v to %v", round, i, got, most/2, most)
			}
		}
		b.Reset()
	}
}
