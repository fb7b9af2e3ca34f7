package web

import (
	"context"
	"strings"
	"testing"
)

// Heavy pages have few turns: nobody takes those of others, whoever waits gets
// the next one, and every turn comes back.
func TestTurns(t *testing.T) {
	t.Parallel()
	var shared slots
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(party string) func() {
		end, err := shared.take(t.Context(), party)
		must(t, err)
		return end
	}
	var ends []func()
	for range maxSlotsEach {
		ends = append(ends, take("acme"))
	}
	if _, err := shared.take(gone, "acme"); err == nil {
		t.Error("one party has more than its turns")
	}
	for len(ends) < maxSlots {
		ends = append(ends, take(strings.Repeat("x", len(ends))))
	}
	if _, err := shared.take(gone, "globex"); err == nil {
		t.Error("a node has more than its turns")
	}
	waited := make(chan error)
	for range maxSlotsEach {
		go func() {
			end, err := shared.take(t.Context(), "globex")
			if err == nil {
				end()
				end() // once is enough
			}
			waited <- err
		}()
	}
	ends[0]()
	for range maxSlotsEach {
		must(t, <-waited)
	}
	for _, end := range ends {
		end()
	}
	if shared.taken != 0 || len(shared.of) != 0 {
		t.Errorf("%d turns are still taken: %v", shared.taken, shared.of)
	}
}
