package enforcement_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/strictjson"
)

func TestReadCarryOver(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		member string
		want   enforcement.CarryOver
		fault  bool
	}{
		{``, enforcement.CarryKeep, false},
		{`,"carry_over":"keep"`, enforcement.CarryKeep, false},
		{`,"carry_over":"reset"`, enforcement.CarryReset, false},
		{`,"carry_over":"proportional"`, enforcement.CarryProportional, false},
		{`,"carry_over":"additive"`, enforcement.CarryAdditive, false},
		{`,"carry_over":"Reset"`, enforcement.CarryKeep, true},
		{`,"carry_over":""`, enforcement.CarryKeep, true},
	} {
		faults := 0
		var d strictjson.Decoder
		d.Reset(`{"slug":"p","limits":[{"algorithm":"fixed_window","quota":1,"window":"1m"`+c.member+`}]}`, strictjson.MaxDepth)
		p := enforcement.ReadPolicy(&d, func(pointer, message string) {
			if faults++; pointer != "/limits/0/carry_over" || message != "must be keep, reset, proportional or additive" {
				t.Errorf("%s: %s %s", c.member, pointer, message)
			}
		})
		if err := d.End(); err != nil {
			t.Fatal(err)
		}
		if got := p.Limits[0].CarryOver; got != c.want || (faults == 1) != c.fault {
			t.Errorf("%s: %s, %d faults", c.member, got, faults)
		}
	}
	l := enforcement.Limit{Name: "l", Algorithm: enforcement.GCRA, Quota: 1, Window: time.Minute, CarryOver: enforcement.CarryAdditive}
	if text, err := l.MarshalJSON(); err != nil || string(text) != `{"name":"l","algorithm":"gcra","quota":1,"window":"1m","carry_over":"additive"}` {
		t.Errorf("%s, %v", text, err)
	}
	if l.CarryOver = enforcement.CarryAdditive + 1; len(l.Validate()) != 1 {
		t.Errorf("%s is valid", l.CarryOver)
	}
	l.Algorithm = enforcement.LeakyBucket
	for carry, faults := range []int{enforcement.CarryProportional: 1, enforcement.CarryAdditive: 0} {
		if l.CarryOver = enforcement.CarryOver(carry); len(l.Validate()) != faults {
			t.Errorf("a leaky_bucket with %s has the faults %v", l.CarryOver, l.Validate())
		}
	}
	if l.Algorithm, l.CarryOver = enforcement.Concurrency, enforcement.CarryReset; len(l.Validate()) != 1 {
		t.Error("a concurrency limit can be reset")
	}
}

// Of two states of one window, that of the later revision is newer: it was carried over.
func TestNewerAfterACarryOver(t *testing.T) {
	t.Parallel()
	before, after := enforcement.State{Rev: 1, A: 9, T: start}, enforcement.State{Rev: 2, A: 4, T: start}
	if s := (enforcement.Stored{Algorithm: enforcement.FixedWindow, State: before}); s.Newer(&after) {
		t.Error("the state before a change replaces the one after it")
	}
	if s := (enforcement.Stored{Algorithm: enforcement.FixedWindow, State: after}); !s.Newer(&before) {
		t.Error("the state after a change does not replace the one before it")
	}
}
