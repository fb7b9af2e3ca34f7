package limitertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// Reservations runs the tests of reservations. The Limiter must be an enforcement.Reserver.
func Reservations(t *testing.T, factory Factory) {
	t.Helper()
	for _, tt := range slices.Concat(reservationTests, carriedReservationTests, grantReservationTests) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(newWorld(t, factory))
		})
	}
}

const adjust = enforcement.Adjust

// A reserved is a reservation of a test.
type reserved struct {
	w       *harness
	record  enforcement.Record
	charges []enforcement.Charge
	most    int64
}

const (
	kept = 10 * minute
	life = minute
)

// reservation returns a request that creates the reservation number n.
func (w *harness) reservation(n byte, most int64, charges ...enforcement.Charge) enforcement.Request {
	r := w.idempotent(w.request(enforce, charges...), n, 1)
	r.Idempotency.Key.Cell = enforcement.ReservationCell
	r.Reservation = &enforcement.Reservation{
		Key: r.Idempotency.Key, Most: most, Life: life.Microseconds(), Kept: kept.Microseconds(), Data: []byte{n, 1, 0, 255},
	}
	return r
}

// reserve creates a reservation. It fails the test unless the request is granted.
func (w *harness) reserve(n byte, charges ...enforcement.Charge) *reserved {
	w.Helper()
	r := w.reservation(n, 100, charges...)
	o := w.take(r)[0]
	w.same(o.Verdict, enforcement.Granted, "the reservation")
	if o.Record == nil {
		w.Fatal("the outcome has no record")
	}
	return &reserved{w: w, record: *o.Record, charges: charges, most: 100}
}

// change returns a request that changes the costs of a reservation to costs. ends says
// whether it also ends the reservation.
func (r *reserved) change(ends bool, costs ...int64) enforcement.Request {
	w := r.w
	request := w.request(adjust)
	request.Home, request.Lease.ID = homeOf(w.tenant), r.record.ID
	for i, cost := range costs {
		c := r.charges[i]
		charged := c.Cost
		if c.Grant || grantsOf(r.charges, i) > 0 {
			charged += r.record.Applied[i]
		}
		receipt := enforcement.Receipt{Cost: charged, State: r.record.Charged[i].State, Index: uint16(i)}
		if c.Meter.Algorithm.Bucket() {
			receipt.Capacity = c.Meter.Capacity
		}
		c.Cost, c.Receipt = cost, &receipt
		request.Charges = append(request.Charges, c)
	}
	key := w.key(enforcement.ReservationCell, r.record.Data[0])
	request.Reservation = &enforcement.Reservation{
		Key: key, Most: r.most, Life: life.Microseconds(), Kept: kept.Microseconds(),
		Data: append(r.record.Data[:1:1], 2), Version: r.record.Version, Ends: ends, Forgotten: r.record.Forgotten(),
	}
	return request
}

// settle ends the reservation with the costs. It fails the test unless the request is
// granted.
func (r *reserved) settle(costs ...int64) enforcement.Outcome {
	r.w.Helper()
	request := r.change(true, costs...)
	o := r.w.take(request)[0]
	r.w.same(o.Verdict, enforcement.Granted, "settle")
	r.record = *r.record.After(&request, &o)
	return o
}

// read returns the record of reservation n, or nil.
func (w *harness) read(n byte) *enforcement.Record {
	w.Helper()
	r := w.request(peek)
	r.Home, r.Reservation = homeOf(w.tenant), &enforcement.Reservation{Key: w.key(enforcement.ReservationCell, n)}
	o := w.ask(r)[0]
	if o.Verdict != enforcement.Granted && o.Verdict != enforcement.Stale || (o.Record == nil) != (o.Verdict == enforcement.Stale) {
		w.Fatalf("read: verdict %s, record %v", o.Verdict, o.Record)
	}
	return o.Record
}

// listed returns the numbers of the outstanding reservations of the tenant.
func (w *harness) listed() (numbers []byte) {
	w.Helper()
	var until int64
	var partition [16]byte
	for {
		list, err := w.limiter.(enforcement.Reserver).Outstanding(context.Background(), homeOf(w.tenant), w.tenant, until, partition, 2)
		if err != nil {
			w.Fatal(err)
		}
		for _, e := range list {
			w.same(e.Key, w.key(enforcement.ReservationCell, e.Key.Partition[15]), "the key in the list")
			w.same(e.Home, homeOf(w.tenant), "the home in the list")
			numbers = append(numbers, e.Key.Partition[15])
			until, partition = e.Until, e.Key.Partition
		}
		if len(list) < 2 {
			return numbers
		}
	}
}

// due returns the numbers of the tenant's reservations that are due.
func (w *harness) due() (numbers []byte) {
	w.Helper()
	list, err := w.limiter.(enforcement.Reserver).Due(context.Background(), 1000)
	if err != nil {
		w.Fatal(err)
	}
	for _, e := range list {
		if e.Key.Tenant == w.tenant {
			numbers = append(numbers, e.Key.Partition[15])
		}
	}
	return numbers
}

var reservationTests = []test{
	// The real cost is below the estimate, above it, and above the limit.
	{"Settle", func(w *harness) {
		for _, limit := range counting(10, minute) {
			for _, real := range []int64{0, 2, 6, 9, 10, 14} {
				w.renew()
				m, other := limit.Compile(1), fixedWindow(100, minute, enforcement.FirstHit).Compile(1)
				w.take(w.request(enforce, w.on(m, w.key(1, 0), 1, 0)))
				r := w.reserve(1, w.on(m, w.key(1, 0), 6, 0), w.on(other, w.key(2, 0), 6, 0))
				what := fmt.Sprintf("%s, %d of 6", limit.Algorithm, real)
				w.same(w.left(m, w.key(1, 0)), 3, what+": reserved")
				o := r.settle(real, 50)
				w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost}, []int64{real, 50}, what+": cost")
				w.same([]int64{w.left(m, w.key(1, 0)), w.left(other, w.key(2, 0))}, []int64{max(9-real, 0), 50}, what+": left")
				w.same(o.Charges[0].State.Fresh(), w.stored(m, w.key(1, 0)).Fresh(), what+": state")
				w.same(m.Left(o.Charges[0].State, o.At), 9-real, what+": left in the outcome")
				record := w.read(1)
				w.same([]any{record.Open, record.Version, record.Applied, record.Data, record.ID == r.record.ID},
					[]any{false, uint32(2), []int64{real - 6, 44}, []byte{1, 2}, true}, what+": record")
				w.same(*record, r.record, what+": the whole record")
			}
		}
	}},
	// A window that has ended does not change.
	{"WindowEnded", func(w *harness) {
		for _, limit := range counting(10, minute) {
			for _, real := range []int64{0, 9} {
				w.renew()
				m := limit.Compile(1)
				r := w.reserve(1, w.on(m, w.key(1, 0), 6, 0))
				w.clock.Advance(2 * minute)
				request := r.change(true, real)
				request.Reservation.Due = true
				w.take(w.request(enforce, w.on(m, w.key(1, 0), 3, 0)))
				o := w.take(request)[0]
				left := int64(7)
				if m.Algorithm.Bucket() && real == 9 {
					left = 4 // a bucket has no windows, so it can go into debt
				}
				w.same(o.Verdict, enforcement.Granted, "settle")
				w.same(w.left(m, w.key(1, 0)), left, limit.Algorithm.String())
			}
		}
	}},
	// The next window of a sliding counter still counts the units of the previous one.
	{"PreviousWindow", func(w *harness) {
		for _, anchor := range []enforcement.Anchor{enforcement.FirstHit, enforcement.Clock} {
			w.renew()
			m := slidingCounter(100, minute, anchor).Compile(1)
			w.clock.Set(Start)
			r := w.reserve(1, w.on(m, w.key(1, 0), 80, 0))
			w.clock.Set(Start + (minute + 30*second).Microseconds())
			w.take(w.request(enforce, w.on(m, w.key(1, 0), 5, 0)))
			w.same(w.left(m, w.key(1, 0)), 55, "half of 80, and 5")
			request := r.change(true, 20)
			request.Reservation.Due = true
			o := w.take(request)[0]
			w.same([]int64{o.Charges[0].Cost, w.left(m, w.key(1, 0))}, []int64{20, 85}, "half of 20, and 5")
		}
	}},
	// Units that a bucket may have refilled since the charge are not returned again. Otherwise
	// it would admit more than its burst.
	{"RefilledBucket", func(w *harness) {
		m := tokenBucket(60, minute, 0).Compile(1)
		for _, c := range []struct {
			before, after, left int64
			wait                time.Duration
			what                string
		}{
			{0, 0, 60, 0, "at once"},
			{0, 0, 60, 10 * second, "the bucket refilled 10, and gets the other 20"},
			{0, 40, 20, 30 * second, "the bucket was full in between, so it gets nothing"},
			{0, 40, 20, 10 * second, "full would be 60 - 40"},
			{30, 0, 50, 20 * second, "20 refilled, and the bucket was never full"},
			{30, 10, 50, 40 * second, "the bucket would be full at 60, so 20 of 30 return"},
		} {
			w.renew()
			key := w.key(1, 0)
			if c.before > 0 {
				w.take(w.request(enforce, w.on(m, key, c.before, 0)))
			}
			r := w.reserve(1, w.on(m, key, 30, 0))
			w.clock.Advance(c.wait)
			if c.after > 0 {
				w.take(w.request(enforce, w.on(m, key, c.after, 0)))
			}
			o := r.settle(0)
			w.same(w.left(m, key), c.left, c.what)
			w.same(o.Charges[0].Cost, r.charges[0].Cost+r.record.Applied[0], c.what)
		}
	}},
	// A refund never raises a bucket above its capacity, and never lowers a count below 0.
	{"NeverAbove", func(w *harness) {
		for _, limit := range counting(10, minute) {
			w.renew()
			m := limit.Compile(1)
			r := w.reserve(1, w.on(m, w.key(1, 0), 8, 0))
			w.take(w.request(refund, w.on(m, w.key(1, 0), 5, 0)))
			r.settle(1)
			w.same(w.left(m, w.key(1, 0)), 10, limit.Algorithm.String())
			w.renew()
			r = w.reserve(1, w.on(m, w.key(1, 0), 8, 0))
			w.take(w.request(reset, w.on(m, w.key(1, 0), 0, 0)))
			o := r.settle(0)
			w.same(w.left(m, w.key(1, 0)), 10, limit.Algorithm.String()+" after a reset")
			w.same(o.Charges[0].Cost, 8, "nothing to return")
		}
	}},
	// A reservation holds places under its own lease. An extension renews the lease, and the
	// end of the reservation frees the places.
	{"Places", func(w *harness) {
		m, count := concurrency(4, minute).Compile(1), fixedWindow(10, minute, enforcement.FirstHit).Compile(1)
		key := w.key(1, 0)
		r := w.reserve(1, w.on(m, key, 2, 0), w.on(count, w.key(2, 0), 5, 0))
		w.same(w.left(m, key), 2, "held")
		w.clock.Set(w.clock.Now() + 30_000_000)
		extend := r.change(false, 3, 5)
		extend.Lease.TTL = 20_000_000
		o := w.take(extend)[0]
		w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost}, []int64{3, 5}, "one more place")
		r.record = *r.record.After(&extend, &o)
		w.same([]int64{w.left(m, key), m.ResetAfter(o.Charges[0].State, o.At)}, []int64{1, 20_000_000}, "renewed")
		end := r.change(true, 0, 7)
		end.Charges[0].Receipt.Cost = 3
		o = w.take(end)[0]
		w.same([]int64{o.Charges[0].Cost, o.Charges[1].Cost}, []int64{0, 7}, "settled")
		w.same([]int64{w.left(m, key), w.left(count, w.key(2, 0))}, []int64{4, 3}, "the places are free")

		short := w.reservation(2, 100, w.on(m, key, 2, 0))
		short.Lease.TTL = 10_000_000
		r = &reserved{w: w, record: *w.take(short)[0].Record, charges: short.Charges, most: 100}
		w.clock.Set(w.clock.Now() + 10_000_000)
		w.take(w.holding(enforce, m, key, 4, 9))
		o = r.settle(0)
		w.same([]int64{o.Charges[0].Cost, w.left(m, key)}, []int64{2, 0}, "the lease had ended, and another one has its places")
	}},
	// The numbers of the limit change. Used units stay used, and the difference of the costs
	// is applied.
	{"OtherNumbers", func(w *harness) {
		for _, limit := range counting(10, minute) {
			for _, quota := range []int64{4, 20} {
				w.renew()
				l := newLimited(limit)
				r := w.reserve(1, w.on(l.now(), w.key(1, 0), 6, 0))
				other := limit
				other.Quota = quota
				l.change(other, w.clock.Now())
				request := r.change(true, 1)
				request.Charges[0].Meter, request.Charges[0].Rev = l.now(), 2
				o := w.take(request)[0]
				want := quota - 1
				if limit.Algorithm.Bucket() && limit.Algorithm != enforcement.LeakyBucket { // which keeps what waits
					want = min(4, quota) + min(5, max(min(10, quota)-min(4, quota), 0))
				}
				w.same([]any{o.Verdict, w.left(l.now(), w.key(1, 0))}, []any{enforcement.Granted, want},
					fmt.Sprintf("%s to %d", limit.Algorithm, quota))
			}
		}
	}},
	// Other charges came in between, and the clock stepped back a little.
	{"ClockStepsBack", func(w *harness) {
		for _, limit := range counting(100, minute) {
			w.renew()
			m := limit.Compile(1)
			w.clock.Set(Start + (30 * second).Microseconds())
			r := w.reserve(1, w.on(m, w.key(1, 0), 60, 0))
			w.clock.Set(Start + (20 * second).Microseconds())
			w.take(w.request(enforce, w.on(m, w.key(1, 0), 10, 0)))
			w.same(w.left(m, w.key(1, 0)), 30, limit.Algorithm.String())
			r.settle(5)
			w.same(w.left(m, w.key(1, 0)), 85, limit.Algorithm.String())
		}
	}},
	// An estimate of 0 opens no window, so the actual cost is charged when the reservation
	// ends.
	{"EstimateOfZero", func(w *harness) {
		for _, limit := range counting(10, minute) {
			w.renew()
			m := limit.Compile(1)
			r := w.reserve(1, w.on(m, w.key(1, 0), 0, 0))
			o := r.settle(12)
			w.same([]any{o.Charges[0].Cost, m.Left(o.Charges[0].State, o.At), w.read(1).Applied},
				[]any{int64(12), int64(-2), []int64{12}}, limit.Algorithm.String())
		}
	}},
	// A denied reservation leaves no record. A repetition is not charged. Another request with
	// the same key is refused.
	{"Create", func(w *harness) {
		for _, limit := range counting(10, minute) {
			w.renew()
			m := limit.Compile(1)
			ask := func(cost int64, what byte) enforcement.Request {
				r := w.reservation(1, 100, w.on(m, w.key(1, 0), cost, 0))
				r.Idempotency.Request[0] = what
				return r
			}
			w.same(w.take(ask(11, 1))[0].Verdict, enforcement.Refused, "denied")
			w.same(w.read(1) == nil, true, "no record")
			r := ask(6, 1)
			first := w.take(r)[0]
			w.same([]any{first.Verdict, first.Replayed, first.Record.Until, first.Record.Open, first.Record.Data},
				[]any{enforcement.Granted, false, w.clock.Now() + life.Microseconds(), true, []byte{1, 1, 0, 255}}, "the first")
			w.same(*w.read(1), *first.Record, "the record")
			w.clock.Advance(30 * second)
			again := w.ask(ask(6, 1))[0]
			w.repeats(&r, &first, &again, limit.Algorithm.String())
			w.same(*again.Record, *first.Record, "the record of the repetition")
			w.same(w.ask(ask(6, 2))[0].Verdict, enforcement.Reused, "another request")
			w.take(w.request(reset, w.on(m, w.key(1, 0), 0, 0)))
			forced := ask(60, 1)
			forced.Mode, forced.Reservation.Key.Partition[15], forced.Idempotency.Key.Partition[15] = force, 2, 2
			w.same(w.take(forced)[0].Verdict, enforcement.Granted, "in mode force")
			w.same(w.listed(), []byte{1, 2}, "listed in the order of their ends")
		}
	}},
	// Many settles name the same version of the record. Only one of them applies.
	{"Once", func(w *harness) {
		for _, limit := range counting(1000, minute) {
			w.renew()
			m := limit.Compile(1)
			r := w.reserve(1, w.on(m, w.key(1, 0), 600, 0))
			var granted atomic.Int64
			var all sync.WaitGroup
			for i := range 100 {
				request := r.change(true, int64(i))
				all.Go(func() {
					if o := w.ask(request)[0]; o.Verdict == enforcement.Granted {
						granted.Add(1)
					} else if o.Verdict != enforcement.Stale || len(o.Charges) != 0 || o.Err != nil {
						w.Errorf("verdict %s, %d charges, %v", o.Verdict, len(o.Charges), o.Err)
					}
				})
			}
			all.Wait()
			w.same(granted.Load(), 1, "settled once")
			w.same(w.left(m, w.key(1, 0)), 400-w.read(1).Applied[0], limit.Algorithm.String())
			w.same(w.ask(r.change(true, 0), r.change(false))[1].Verdict, enforcement.Stale, "it has ended")
		}
	}},
	{"Extend", func(w *harness) {
		m := fixedWindow(10, time.Hour, enforcement.FirstHit).Compile(1)
		r := w.reserve(1, w.on(m, w.key(1, 0), 6, 0))
		w.clock.Advance(life - 1*micro)
		extend := r.change(false)
		o := w.take(extend)[0]
		w.same(o.Verdict, enforcement.Granted, "at the last instant")
		r.record = *r.record.After(&extend, &o)
		w.same(*w.read(1), r.record, "extended")
		w.same([]any{r.record.Until, w.listed(), w.left(m, w.key(1, 0))},
			[]any{w.clock.Now() + life.Microseconds(), []byte{1}, int64(4)}, "extended")
		w.clock.Advance(life)
		w.same(w.ask(r.change(false), r.change(true, 0))[0].Verdict, enforcement.Stale, "its time has passed")
		w.same(w.ask(r.change(true, 0))[0].Verdict, enforcement.Stale, "its time has passed")
		w.same(w.left(m, w.key(1, 0)), 4, "nothing is returned yet")
	}},
	// Due ends a reservation at its end, and not before.
	{"Due", func(w *harness) {
		m := fixedWindow(10, time.Hour, enforcement.FirstHit).Compile(1)
		r := w.reserve(1, w.on(m, w.key(1, 0), 6, 0))
		end := func() enforcement.Outcome {
			request := r.change(true, 0)
			request.Reservation.Due = true
			return w.ask(request)[0]
		}
		w.clock.Advance(life - 1*micro)
		w.same([]any{end().Verdict, w.due()}, []any{enforcement.Stale, []byte(nil)}, "not yet")
		w.clock.Advance(1 * micro)
		w.same(w.due(), []byte{1}, "due")
		w.same([]any{end().Verdict, w.left(m, w.key(1, 0))}, []any{enforcement.Granted, int64(10)}, "given back")
		w.same([]any{w.due(), w.listed(), end().Verdict}, []any{[]byte(nil), []byte(nil), enforcement.Stale}, "once")
	}},
	// A record has an effect until the time that Record.Forgotten returns.
	{"Forgotten", func(w *harness) {
		m := fixedWindow(100, 24*time.Hour, enforcement.FirstHit).Compile(1)
		r, unlisted := w.reserve(1, w.on(m, w.key(1, 0), 6, 0)), w.reservation(2, 0, w.on(m, w.key(1, 0), 3, 0))
		w.take(unlisted)
		w.same(w.listed(), []byte{1}, "only one is listed")
		w.clock.Advance(10 * second)
		r.settle(1)
		w.same(w.listed(), []byte(nil), "none is outstanding")
		w.clock.Advance(kept - 1*micro)
		w.same([]bool{w.read(1) != nil, w.read(2) != nil}, []bool{true, true}, "still known")
		w.clock.Advance(1 * micro)
		w.same([]bool{w.read(1) != nil, w.read(2) != nil}, []bool{false, true}, "10 minutes after the settle")
		w.clock.Advance(50 * second)
		w.same(w.read(2) != nil, false, "10 minutes after its end")
		w.same(w.due(), []byte(nil), "not listed")
		w.same(w.take(w.reservation(1, 100, w.on(m, w.key(1, 0), 6, 0)))[0].Replayed, false, "the key can be used again")
	}},
	// The bound counts the reservations whose time has not passed.
	{"Bound", func(w *harness) {
		m := fixedWindow(100, time.Hour, enforcement.FirstHit).Compile(1)
		ask := func(n byte) enforcement.Request { return w.reservation(n, 3, w.on(m, w.key(1, 0), 1, 0)) }
		o := w.ask(ask(1), ask(2), ask(3), ask(4), ask(1))
		verdicts := []enforcement.Verdict{o[0].Verdict, o[1].Verdict, o[2].Verdict, o[3].Verdict, o[4].Verdict}
		granted := enforcement.Granted
		w.same(verdicts, []enforcement.Verdict{granted, granted, granted, enforcement.Full, granted}, "in one call")
		w.same([]any{o[3].Err, len(o[3].Charges), o[4].Replayed, w.left(m, w.key(1, 0))}, []any{nil, 0, true, int64(97)}, "charged")
		w.same(w.ask(ask(5))[0].Verdict, enforcement.Full, "in another call")
		r := &reserved{w: w, record: *o[1].Record, charges: ask(2).Charges, most: 3}
		r.settle(1)
		w.same(w.take(ask(5))[0].Verdict, enforcement.Granted, "one has ended")
		r = &reserved{w: w, record: *o[0].Record, charges: ask(1).Charges, most: 3}
		o = w.ask(r.change(true, 1), ask(7), ask(8))
		w.same([]enforcement.Verdict{o[0].Verdict, o[1].Verdict, o[2].Verdict}, []enforcement.Verdict{granted, granted, enforcement.Full},
			"one ends in the same call")
		w.clock.Advance(life)
		w.same(w.take(ask(6))[0].Verdict, enforcement.Granted, "their time has passed")
	}},
	// A reservation with another idempotency key has two records, which are made in one step.
	{"OtherKey", func(w *harness) {
		for _, limit := range each(10, minute) {
			w.renew()
			m := limit.Compile(1)
			ask := func(n, key, what byte, cost int64) enforcement.Request {
				r := w.reservation(n, 0, w.on(m, w.key(1, 0), cost, 0))
				r.ID[0] = n
				r.Reservation.Life = time.Hour.Microseconds()
				r.Idempotency.Key, r.Idempotency.Request[0] = w.key(enforcement.IdempotencyCell, key), what
				return r
			}
			w.same(w.take(ask(1, 1, 1, 11))[0].Verdict, enforcement.Refused, "denied")
			w.same(w.read(1) == nil, true, "no record of a denial")
			r := ask(1, 1, 1, 3)
			o := w.ask(r, ask(2, 1, 1, 3), ask(3, 1, 2, 3), ask(4, 2, 1, 3))
			w.same([]any{o[0].Verdict, o[0].Replayed, o[0].Record.ID}, []any{enforcement.Granted, false, r.ID}, "the first")
			w.repeats(&r, &o[0], &o[1], limit.Algorithm.String())
			w.same([]enforcement.Verdict{o[2].Verdict, o[3].Verdict}, []enforcement.Verdict{enforcement.Reused, enforcement.Granted}, "others")
			again := ask(5, 1, 1, 3)
			w.repeats(&r, &o[0], &w.ask(again)[0], "in another call")
			plain := w.idempotent(w.request(enforce, w.on(m, w.key(1, 0), 1, 0)), 1, 9)
			w.same(w.ask(plain)[0].Verdict, enforcement.Reused, "a request without a reservation")
			w.same([]any{w.left(m, w.key(1, 0)), w.read(2) == nil, w.read(3) == nil, w.read(5) == nil}, []any{int64(4), true, true, true}, "charged")
			w.same(*w.read(1), *o[0].Record, "the record of the reservation")
			w.clock.Advance(10 * minute)
			w.same(w.take(ask(6, 1, 2, 1))[0].Replayed, false, "the key can be used again")
			made := &reserved{w: w, record: *w.read(1), charges: r.Charges}
			made.settle(0)
			w.same(w.ask(made.change(true, 0))[0].Verdict, enforcement.Stale, "settled once")
		}
	}},
	// Shadow groups are charged and settled too.
	{"Shadow", func(w *harness) {
		m, shadow := fixedWindow(10, minute, enforcement.FirstHit).Compile(1), slidingLog(3, minute).Compile(1)
		r := w.reserve(1, w.on(m, w.key(1, 0), 2, 0), w.on(shadow, w.key(2, 0), 2, 1))
		w.same(r.record.Charged[1].Fits, true, "charged")
		r.settle(1, 3)
		w.same([]int64{w.left(m, w.key(1, 0)), w.left(shadow, w.key(2, 0))}, []int64{9, 0}, "settled")
		r = w.reserve(2, w.on(m, w.key(1, 0), 2, 0), w.on(shadow, w.key(2, 0), 2, 1))
		w.same(r.record.Charged[1].Fits, false, "not charged")
	}},
	// Reservations share calls with other requests.
	{"Together", func(w *harness) {
		for _, limit := range counting(100, minute) {
			w.renew()
			m := limit.Compile(1)
			check := w.request(enforce, w.on(m, w.key(1, 0), 1, 0))
			r := w.reserve(1, w.on(m, w.key(1, 0), 30, 0))
			o := w.ask(check, r.change(true, 10), w.reservation(2, 100, w.on(m, w.key(1, 0), 5, 0)), check, r.change(true, 3), check)
			var left []int64
			for i := range o {
				if o[i].Verdict == enforcement.Granted {
					left = append(left, m.Remaining(o[i].Charges[0].State, o[i].At))
				}
			}
			w.same(left, []int64{69, 89, 84, 83, 82}, limit.Algorithm.String())
			w.same(w.left(m, w.key(1, 0)), 82, limit.Algorithm.String())
			w.same(w.listed(), []byte{2}, "outstanding")
		}
	}},
	// A request that is decided by its record or by a bound does not change the decisions of
	// the other requests in the call. These may belong to another tenant.
	{"AmongOthers", func(w *harness) {
		for _, limit := range each(100, minute) {
			w.renew()
			m := limit.Compile(1)
			made := w.reserve(1, w.on(m, w.key(1, 0), 30, 0))
			mine, others := w.key(2, 0), w.key(2, 0)
			others.Tenant += 64 // with the same home
			keyed := func(n, what byte) enforcement.Request {
				r := w.reservation(n, 100, w.on(m, w.key(1, 0), 7, 0))
				r.Idempotency.Key, r.Idempotency.Request[0] = w.key(enforcement.IdempotencyCell, 9), what
				return r
			}
			w.take(keyed(2, 1))
			again, conflict := w.reservation(1, 100, made.charges...), w.reservation(1, 100, made.charges...)
			conflict.Idempotency.Request[0], conflict.Reservation.Life = 2, 2*life.Microseconds()
			stale := made.change(true, 20)
			stale.Reservation.Version++
			read, unknown := w.request(peek), w.request(peek)
			read.Reservation = &enforcement.Reservation{Key: w.key(enforcement.ReservationCell, 1)}
			unknown.Reservation = &enforcement.Reservation{Key: w.key(enforcement.ReservationCell, 7)}
			granted, stays := enforcement.Granted, int64(63)
			for i, c := range []struct {
				request enforcement.Request
				want    enforcement.Verdict
				what    string
			}{
				{again, granted, "repeated"},
				{conflict, enforcement.Reused, "another request with its ID"},
				{keyed(3, 1), granted, "its idempotency key repeated"},
				{keyed(4, 2), enforcement.Reused, "another request with its idempotency key"},
				{read, granted, "read"},
				{unknown, enforcement.Stale, "read, but unknown"},
				{stale, enforcement.Stale, "changed with an old version"},
				{w.reservation(5, 100, w.on(m, w.key(1, 0), 101, 0)), enforcement.Refused, "denied"},
				{w.reservation(6, 2, w.on(m, w.key(1, 0), 1, 0)), enforcement.Full, "one too many"},
			} {
				what := fmt.Sprintf("%s: %s", limit.Algorithm, c.what)
				one := func(key enforcement.Key) enforcement.Request { return w.request(enforce, w.on(m, key, 1, 0)) }
				o := w.ask(one(mine), c.request, one(others), one(mine), c.request, one(others))
				var verdicts []enforcement.Verdict
				for k := range o {
					verdicts = append(verdicts, o[k].Verdict)
				}
				w.same(verdicts, []enforcement.Verdict{granted, c.want, granted, granted, c.want, granted}, what)
				left := int64(100 - 2*(i+1))
				w.same([]int64{w.left(m, mine), w.left(m, others), w.left(m, w.key(1, 0))}, []int64{left, left, stays}, what)
			}
		}
	}},
}

// stored returns the state of a counter.
func (w *harness) stored(m *enforcement.Meter, key enforcement.Key) *enforcement.State {
	w.Helper()
	return &w.take(w.request(peek, w.on(m, key, 0, 0)))[0].Charges[0].State
}
