package admission

import (
	"context"
	"strings"
	"testing"
)

// A party and a node have bounded slots. A waiting request gets the next free slot. At the end, all slots are free.
func TestSlots(t *testing.T) {
	t.Parallel()
	var shared Slots
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	take := func(party string) func() {
		end, ok := shared.Take(t.Context(), party)
		if !ok {
			t.Fatalf("%s gets no slot", party)
		}
		return end
	}
	var ends []func()
	for range MaxSlotsEach {
		ends = append(ends, take("acme"))
	}
	if _, ok := shared.Take(gone, "acme"); ok {
		t.Error("one party has more than its slots")
	}
	for len(ends) < MaxSlots {
		ends = append(ends, take(strings.Repeat("x", len(ends))))
	}
	if _, ok := shared.Take(gone, "globex"); ok {
		t.Error("a node has more than its slots")
	}
	waited := make(chan bool)
	for range MaxSlotsEach {
		go func() {
			end, ok := shared.Take(t.Context(), "globex")
			if ok {
				end()
				end() // once is enough
			}
			waited <- ok
		}()
	}
	ends[0]()
	for range MaxSlotsEach {
		if !<-waited {
			t.Error("a waiting request gets no slot, although one is free")
		}
	}
	for _, end := range ends {
		end()
	}
	if shared.Taken() != 0 || len(shared.of) != 0 {
		t.Errorf("%d slots are still taken: %v", shared.Taken(), shared.of)
	}
}
