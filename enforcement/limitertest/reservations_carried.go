package limitertest

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// A carriedQuota is a change of the quota, which is also the burst.
type carriedQuota struct {
	to    int64
	carry enforcement.CarryOver
}

// carriedReservationTests are the tests of reservations on a bucket whose burst changes before the settle.
var carriedReservationTests = []test{
	// A settle returns what it would return without the change, except for units that the bucket has refilled
	// since, and for those that the change has cut off or scaled. The level is then that of a bucket that was not
	// charged.
	{"CarriedBucket", func(w *harness) {
		const keep, reset = enforcement.CarryKeep, enforcement.CarryReset
		const proportional, additive = enforcement.CarryProportional, enforcement.CarryAdditive
		for _, c := range []struct {
			from, cost int64
			changes    []carriedQuota
			wait       time.Duration // from the changes to the other charge and to the settle
			other      int64
			real       int64
			back, left int64 // -back units are charged
			what       string
		}{
			{100, 40, []carriedQuota{{200, additive}}, 0, 0, 0, 40, 200, "40 of 200 are used"},
			{100, 40, []carriedQuota{{200, additive}}, 0, 0, 5, 35, 195, "settled with 5"},
			{100, 40, []carriedQuota{{200, additive}}, 0, 50, 0, 40, 150, "another charge stays"},
			{100, 40, []carriedQuota{{200, additive}}, 10 * second, 0, 0, 20, 200, "2 refill in a second"},
			{100, 40, []carriedQuota{{200, additive}}, 30 * second, 70, 0, 0, 130, "the bucket was full again"},
			{100, 100, []carriedQuota{{200, additive}}, 0, 0, 220, -120, -20, "into debt"},
			{100, 40, []carriedQuota{{200, keep}}, 0, 0, 0, 40, 100, "at most what the former burst left"},
			{100, 40, []carriedQuota{{200, keep}}, 25 * second, 0, 0, 40, 150, "refilled above the former burst"},
			{100, 40, []carriedQuota{{200, keep}}, 60 * second, 0, 0, 20, 200, "an unused bucket would be full after 50 s"},
			{100, 40, []carriedQuota{{200, keep}}, 60 * second, 100, 0, 20, 100, "also with another charge"},
			{200, 40, []carriedQuota{{100, additive}}, 0, 0, 0, 40, 100, "a lower burst less the used units"},
			{200, 180, []carriedQuota{{100, additive}}, 0, 0, 0, 180, 100, "out of the debt that the change made"},
			{200, 40, []carriedQuota{{100, keep}}, 0, 30, 0, 0, 70, "the change has cut off the units"},
			{200, 120, []carriedQuota{{100, keep}}, 0, 0, 0, 20, 100, "the change has cut off 100 of the units"},
			{100, 40, []carriedQuota{{50, keep}, {100, keep}}, 0, 0, 0, 0, 50, "cut off, then raised"},
			{100, 40, []carriedQuota{{150, additive}, {300, additive}}, 0, 0, 10, 30, 290, "raised twice"},
			{100, 40, []carriedQuota{{200, proportional}}, 0, 0, 0, 0, 120, "scaled units are not returned"},
			{100, 40, []carriedQuota{{200, reset}}, 0, 0, 0, 0, 200, "a reset has returned them"},
			{100, 40, []carriedQuota{{200, reset}, {300, additive}}, 0, 50, 0, 0, 250, "a reset, then raised"},
		} {
			for _, bucket := range []func(int64, time.Duration, int64) enforcement.Limit{tokenBucket, gcra} {
				w.renew()
				limit, key := bucket(c.from, 100*second, 0), w.key(1, 0)
				l := newLimited(limit)
				r := w.reserve(1, w.on(l.now(), key, c.cost, 0))
				for _, change := range c.changes {
					limit.Quota, limit.CarryOver = change.to, change.carry
					l.change(limit, w.clock.Now())
				}
				w.clock.Advance(c.wait)
				m := l.now()
				if c.other > 0 {
					w.take(w.request(enforce, w.on(m, key, c.other, 0)))
				}
				request := r.change(true, c.real)
				request.Charges[0].Meter, request.Charges[0].Rev, request.Reservation.Due = m, m.Rev, c.wait >= life
				o := w.take(request)[0]
				w.same([]any{o.Verdict, o.Charges[0].Cost, m.Left(o.Charges[0].State, o.At), w.left(m, key)},
					[]any{enforcement.Granted, c.cost - c.back, c.left, max(c.left, 0)},
					fmt.Sprintf("%s, %d of %d, then %v: %s", limit.Algorithm, c.cost, c.from, c.changes, c.what))
			}
		}
	}},
	// A node that does not have the change yet settles a reservation that was made after it. It does not return units
	// that have refilled at the new rate.
	{"CarriedBucketByAStaleNode", func(w *harness) {
		for _, raised := range []enforcement.CarryOver{enforcement.CarryKeep, enforcement.CarryAdditive} {
			w.renew()
			limit, key := tokenBucket(100, 100*second, 0), w.key(1, 0)
			l := newLimited(limit)
			w.take(w.request(enforce, w.on(l.now(), key, 1, 0)))
			limit.Quota, limit.CarryOver = 200, raised
			l.change(limit, w.clock.Now())
			r := w.reserve(1, w.on(l.now(), key, 90, 0))
			w.clock.Advance(100 * second)
			w.take(w.request(enforce, w.on(l.now(), key, 150, 0)))
			request := r.change(true, 0)
			request.Charges[0].Meter, request.Charges[0].Rev = l.at(1), 1
			request.Reservation.Due = true
			o := w.take(request)[0]
			w.same([]any{o.Charges[0].Cost, w.left(l.now(), key)}, []any{int64(90), int64(50)}, raised.String())
		}
	}},
}
