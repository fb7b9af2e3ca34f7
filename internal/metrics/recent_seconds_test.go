package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

func TestSecondsAreThoseOfTheDecisions(t *testing.T) {
	t.Parallel()
	now := at
	r := NewRecorder(Config{Now: func() time.Time { return now }})
	d := func(when time.Time, tenant uint32) *enforcement.Decision {
		d := decision(true, enforcement.ReasonOK, enforcement.Enforce)
		d.ID, d.Subject.Number = idAt(when, 1, 1), tenant
		return d
	}
	for i := range 10 {
		for range i {
			r.Record(d(at.Add(time.Duration(i)*time.Second), uint32(1+i%2)))
		}
	}
	now = at.Add(9*time.Second + time.Millisecond)
	r.drain()
	r.Record(d(at.Add(3*time.Second), 2)) // late
	r.Record(d(at.Add(-time.Hour), 2))    // a quarter of an hour late and more
	r.drain()
	seconds := r.Seconds(0, at)
	if len(seconds) != 9 {
		t.Fatalf("%d seconds: %v", len(seconds), seconds)
	}
	for i, s := range seconds {
		want := int64(i)
		if i == 3 {
			want++
		}
		if !s.At.Equal(at.Add(time.Duration(i)*time.Second)) || s.Requests != want || s.OK != want {
			t.Errorf("second %d: %+v", i, s)
		}
	}
	odd := r.Seconds(2, at.Add(time.Millisecond))
	if len(odd) != 8 || odd[0].Requests != 1 || odd[1].Requests != 0 || odd[2].Requests != 4 {
		t.Errorf("of tenant 2: %+v", odd)
	}
	if unknown := r.Seconds(99, at); len(unknown) != 9 || unknown[5].Requests != 0 {
		t.Errorf("of nobody: %+v", unknown)
	}
	if all := r.Seconds(0, time.Time{}); len(all) != ringSeconds {
		t.Errorf("%d seconds from the beginning of time", len(all))
	}
	if none := r.Seconds(0, now.Add(time.Hour)); len(none) != 0 {
		t.Errorf("%d seconds of the future", len(none))
	}
}

func TestRingForgets(t *testing.T) {
	t.Parallel()
	var r ring
	one := &Counts{Requests: 1, Cost: math.MaxInt32}
	for i := range uint32(maxRings + 10) {
		r.add(1+i, 600, one)
		r.add(1, 600, one) // stays, as it counts something all the time
	}
	if len(r.tenants) != maxRings || r.recent.Len() != maxRings || r.tenants[1] == nil || r.tenants[2] != nil || r.tenants[maxRings+10] == nil {
		t.Errorf("%d tenants", len(r.tenants))
	}
	first := r.of(1)
	first.add(600+ringSeconds, one)
	first.add(600, one) // its place has another minute now
	if m := first.minutes[10]; m.at != 25 || m.seconds[0].fields[0] != 1 {
		t.Errorf("%+v", m.seconds[0])
	}
	first.add(600+ringSeconds, &Counts{Requests: math.MaxUint32, Cost: math.MaxInt32})
	if c := first.minutes[10].seconds[0].counts(); c.Requests != math.MaxUint32 || c.Cost != 2*math.MaxInt32 {
		t.Errorf("%+v", c)
	}
}

func TestRingKnowsTheFieldsOfCounts(t *testing.T) {
	t.Parallel()
	var c Counts
	fields := c.fields()
	if len(fields) != countFields || fields[countFields-1] != &c.Cost || len(Columns) != countFields {
		t.Errorf("%d fields", len(fields))
	}
	for i, f := range fields {
		*f = int64(i + 1)
	}
	var r tenantRing
	r.add(0, &c)
	if got := r.minutes[0].seconds[0].counts(); got != c {
		t.Errorf("%+v, want %+v", got, c)
	}
}
