package enforcement_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/internal/problem"
)

// reserving has an engine with reservations on a clock.
type reserving struct {
	*testing.T
	engine *enforcement.Engine
	shared *faulty
	clock  *limitertest.Clock
	s      *enforcement.Subject
}

// newReserving has a policy that counts requests, and one that counts tokens per user. The
// second gives expired reservations back and clamps estimates.
func newReserving(t *testing.T, cfg enforcement.Config) *reserving {
	t.Helper()
	w := &reserving{T: t, clock: limitertest.NewClock()}
	store := inprocess.New(inprocess.Config{Now: w.clock.Now})
	w.shared = &faulty{Limiter: store}
	cfg.Now, cfg.Reserver = func() time.Time { return time.UnixMicro(w.clock.Now()) }, store
	w.engine = enforcement.NewEngine(w.shared, cfg)
	w.s = subject(t,
		enforcement.RuleSpec{Policy: "requests", OnFailure: enforcement.OnFailureOpen, Limits: []enforcement.RuleLimit{window(1, 5)}},
		enforcement.RuleSpec{
			Policy: "tokens", CountBy: []string{"user"}, CostFrom: "tokens", OnFailure: enforcement.OnFailureOpen,
			ReservationExpiry: enforcement.RefundExpired, ReservationEstimate: enforcement.ClampEstimate,
			Limits: []enforcement.RuleLimit{window(2, 100)},
		},
	)
	return w
}

// reserve reserves the tokens of user u.
func (w *reserving) reserve(id, tokens string) *enforcement.Decision {
	c := asked("", "/a", "user", "u", "tokens", tokens)
	c.Reservation = &enforcement.CheckReservation{ID: id, Life: 30 * time.Second}
	return decide(w.engine, w.s, c)
}

// left returns the remaining units of both limits, by a peek.
func (w *reserving) left() string {
	d := decide(w.engine, w.s, peek(asked("", "/a", "user", "u", "tokens", "0")))
	return fmt.Sprint(d.Limits[0].Remaining+1, " ", d.Limits[1].Remaining)
}

func (w *reserving) is(got, want, what string) {
	w.Helper()
	if got != want {
		w.Errorf("%s: %s, want %s", what, got, want)
	}
}

// change changes a reservation and returns the result as a line.
func (w *reserving) change(c enforcement.ReservationChange) string {
	r, replayed, err := w.engine.ChangeReservation(context.Background(), w.s, &c)
	if err != nil {
		return strings.TrimSpace(fmt.Sprint(problem.Of(err), " ", err.Error()))
	}
	return line(r, replayed)
}

func line(r *enforcement.Reserved, replayed bool) string {
	text := fmt.Sprint(r.ID, " ", r.State)
	if replayed {
		text = "replayed " + text
	}
	for _, l := range r.Limits {
		text += fmt.Sprintf(" %s.%s %d of %d", l.Policy, l.Limit, l.Cost, l.Estimate)
	}
	return text
}

func settled(id string, attributes ...enforcement.Attribute) enforcement.ReservationChange {
	return enforcement.ReservationChange{ID: id, State: enforcement.ReservationSettled, Attributes: attributes}
}

func tokens(n string) enforcement.Attribute { return enforcement.Attribute{Name: "tokens", Value: n} }

func TestReserveAndSettle(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	d := w.reserve("r1", "60")
	if !d.Allowed || d.Reservation == nil {
		t.Fatalf("%+v", d)
	}
	w.is(line(d.Reservation, false), "r1 active requests.l1 1 of 1 tokens.l2 60 of 60", "reserved")
	w.is(w.left(), "4 40", "reserved")
	again := w.reserve("r1", "60")
	if again.ID != d.ID || again.Idempotency != enforcement.Replayed || again.Reservation == nil {
		t.Errorf("the repetition: %+v", again)
	}
	if other := w.reserve("r1", "61"); other.Idempotency != enforcement.KeyReused || other.Allowed {
		t.Errorf("another reservation with the ID: %+v", other)
	}
	w.is(w.left(), "4 40", "charged once")

	w.is(w.change(settled("r1", tokens("85"))), "r1 settled requests.l1 1 of 1 tokens.l2 85 of 60", "settled")
	w.is(w.left(), "4 15", "settled")
	w.is(w.change(settled("r1", tokens("85"))), "replayed r1 settled requests.l1 1 of 1 tokens.l2 85 of 60", "settled again")
	w.is(w.change(settled("r1", tokens("80"))),
		"conflict reservation r1 was settled at 2026-01-01T00:00:00.000Z; policy requests, limit l1: 1 of 1 charged; policy tokens, limit l2: 85 of 60 charged",
		"settled otherwise")
	w.is(w.change(enforcement.ReservationChange{ID: "r1", State: enforcement.ReservationActive, Life: time.Minute})[:8], "conflict", "extended after its end")
	w.is(w.left(), "4 15", "unchanged")
	if d := w.reserve("r2", "16"); d.Allowed || d.Reservation != nil || d.Reason != enforcement.ReasonOverLimit {
		t.Errorf("over the limit: %+v", d)
	}
	w.is(w.change(settled("r2"))[:9], "not found", "a denied reservation")
	w.is(w.change(settled("r3"))[:9], "not found", "an unknown reservation")

	foreign := *w.s
	foreign.Number++
	if _, err := w.engine.Reservation(t.Context(), &foreign, "r1"); !problem.Is(err, problem.NotFound) {
		t.Errorf("another tenant: %v", err)
	}
}

// The cost of a settle counts for policies without an attribute that carries the cost.
func TestSettleWithCost(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.reserve("r1", "60")
	cost := int64(3)
	change := settled("r1")
	change.Cost = &cost
	w.is(w.change(change), "r1 settled requests.l1 3 of 1 tokens.l2 60 of 60", "the attribute of the check keeps its estimate")
	w.is(w.left(), "2 40", "settled")
}

func TestReleaseAndExtend(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.reserve("r1", "60")
	w.clock.Advance(20 * time.Second)
	w.is(w.change(enforcement.ReservationChange{ID: "r1", State: enforcement.ReservationActive, Life: 30 * time.Second}),
		"r1 active requests.l1 1 of 1 tokens.l2 60 of 60", "extended")
	w.clock.Advance(20 * time.Second)
	w.is(w.change(enforcement.ReservationChange{ID: "r1", State: enforcement.ReservationReleased}),
		"r1 released requests.l1 0 of 1 tokens.l2 0 of 60", "after the first end")
	w.is(w.left(), "5 100", "given back")
	w.is(w.change(enforcement.ReservationChange{ID: "r1", State: enforcement.ReservationReleased}),
		"replayed r1 released requests.l1 0 of 1 tokens.l2 0 of 60", "again")
}

// When a reservation ends, it keeps or returns its cost, as the policies define. It makes no
// difference whether a call or the sweeper ends it.
func TestReservationExpires(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"sweep", "settle", "get"} {
		w := newReserving(t, enforcement.Config{})
		w.reserve("r1", "60")
		w.clock.Advance(30*time.Second - 1000)
		w.sweep()
		w.is(w.left(), "4 40", ends+": not yet")
		w.clock.Advance(1000)
		switch ends {
		case "sweep":
			w.sweep()
			w.is(w.left(), "4 100", "one policy keeps the cost, the other returns it")
		case "get":
			r, err := w.engine.Reservation(t.Context(), w.s, "r1")
			if err != nil {
				t.Fatal(err)
			}
			w.is(line(r, false), "r1 expired requests.l1 1 of 1 tokens.l2 0 of 60", "read")
		}
		w.is(w.change(settled("r1", tokens("5"))), "conflict reservation r1 ended by itself at 2026-01-01T00:00:30.000Z; "+
			"policy requests, limit l1: 1 of 1 charged; policy tokens, limit l2: 0 of 60 charged", ends)
		w.is(w.left(), "4 100", ends)
		w.sweep()
		w.is(w.left(), "4 100", ends+": once")
	}
}

func (w *reserving) sweep() {
	w.Helper()
	subject := func(number uint32) (*enforcement.Subject, bool) { return w.s, number == w.s.Number }
	if err := w.engine.EndReservations(context.Background(), subject); err != nil {
		w.Error(err)
	}
}

// A limit that is no longer in the plan keeps what was charged.
func TestSettleAfterThePlanChanged(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.reserve("r1", "60")
	w.s = subject(t, enforcement.RuleSpec{
		Policy: "tokens", CountBy: []string{"user"}, CostFrom: "tokens", Limits: []enforcement.RuleLimit{window(2, 50)},
	})
	w.is(w.change(settled("r1", tokens("10"))), "r1 settled requests.l1 1 of 1 tokens.l2 10 of 60", "settled")
	d := decide(w.engine, w.s, peek(asked("", "/a", "user", "u", "tokens", "0")))
	w.is(fmt.Sprint(d.Limits[0].Remaining), "40", "left of the new quota")
}

// A reservation with an override is settled with the numbers of the override.
func TestSettleWithOverride(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.reserve("r1", "60")
	w.s = addExceptions(t, w.s, enforcement.ExceptionSpec{Overrides: []enforcement.Override{{
		ID: "o", Policy: "tokens", Attribute: "user", Value: "u", Factor: 2000, Revision: 9, Until: w.clock.Now() + 3600*second,
	}}})
	w.is(w.change(settled("r1", tokens("150"))), "r1 settled requests.l1 1 of 1 tokens.l2 150 of 60", "settled")
	w.is(w.left(), "4 50", "of 200")
}

func TestEstimateAboveTheLimit(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.is(line(w.reserve("r1", "500").Reservation, false), "r1 active requests.l1 1 of 1 tokens.l2 100 of 100", "clamped to the quota")
	w.is(w.change(settled("r1", tokens("30"))), "r1 settled requests.l1 1 of 1 tokens.l2 30 of 100", "settled")
	w.s = subject(t, enforcement.RuleSpec{Policy: "tokens", CostFrom: "tokens", Limits: []enforcement.RuleLimit{window(3, 100)}})
	if d := w.reserve("r2", "500"); d.Allowed || d.Reason != enforcement.ReasonCostExceedsQuota {
		t.Errorf("denied by default: %+v", d)
	}
}

func TestReservationBound(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{Reservations: 2})
	w.reserve("r1", "1")
	w.reserve("r2", "1")
	if d := w.reserve("r3", "1"); d.Allowed || d.Idempotency != enforcement.TooManyReservations {
		t.Errorf("%+v", d)
	}
	w.is(w.left(), "3 98", "nothing is charged")
	list, err := w.engine.Reservations(t.Context(), w.s, "", 1)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	next, err := w.engine.Reservations(t.Context(), w.s, list[0].Place, 5)
	if err != nil || len(next) != 1 || next[0].ID == list[0].ID {
		t.Errorf("%v, %v", next, err)
	}
}

func TestReservationCounts(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{Reservations: 3})
	for _, id := range []string{"r1", "r2", "r3", "r3", "r4"} {
		w.reserve(id, "1")
	}
	w.sweep()
	for range 2 {
		w.change(settled("r1", tokens("1")))
		w.change(enforcement.ReservationChange{ID: "r2", State: enforcement.ReservationReleased})
	}
	w.reserve("r5", "1000") // denied by the limit
	w.is(fmt.Sprintf("%+v", w.engine.ReservationCounts()),
		"{Outstanding:3 Created:3 Refused:1 Settled:1 Released:1 Expired:0 Refundable:0 Refunded:0}", "repetitions count once")
	w.clock.Advance(time.Minute)
	for range 10 {
		w.sweep()
	}
	w.is(fmt.Sprintf("%+v", w.engine.ReservationCounts()),
		"{Outstanding:0 Created:3 Refused:1 Settled:1 Released:1 Expired:1 Refundable:0 Refunded:0}", "at the end")
}

// Without the limiter, failure modes decide and create no reservation. A settle can be
// repeated.
func TestReservationsWithoutTheLimiter(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.reserve("r1", "60")
	w.shared.down = true
	if d := w.reserve("r2", "10"); !d.Allowed || !d.Degraded || d.Reservation != nil {
		t.Errorf("open policies: %+v", d)
	}
	w.is(w.change(settled("r1", tokens("10")))[:11], "unavailable", "a settle")
	w.shared.down = false
	w.is(w.change(settled("r1", tokens("10"))), "r1 settled requests.l1 1 of 1 tokens.l2 10 of 60", "repeated")
	w.is(w.change(settled("r2", tokens("1")))[:9], "not found", "the degraded one")
	w.is(w.left(), "4 90", "left")
}

// A reservation without limits is stored too, so that a settle finds it.
func TestReservationWithoutLimits(t *testing.T) {
	t.Parallel()
	w := newReserving(t, enforcement.Config{})
	w.s = &enforcement.Subject{Tenant: "acme", Number: 7, Home: "t07"}
	if d := w.reserve("", "10"); !d.Allowed || d.Reservation == nil || len(d.Reservation.ID) != 36 {
		t.Errorf("%+v", d)
	} else {
		w.is(w.change(settled(d.Reservation.ID)), d.Reservation.ID+" settled", "settled")
	}
}

// damaging is a limiter whose store has cut the records of reservations.
type damaging struct{ enforcement.Limiter }

func (l damaging) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	l.Limiter.Take(ctx, requests, outcomes)
	for i := range outcomes {
		if found := outcomes[i].Record; found != nil {
			record := *found
			record.Data = record.Data[:len(record.Data)-5]
			outcomes[i].Record = &record
		}
	}
}

// A damaged record is as if there were none. The log says so.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	w := newReserving(t, enforcement.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	w.reserve("r1", "60")
	check := w.refundable("10")
	w.shared.Limiter = damaging{w.shared.Limiter}
	for i, call := range []func() error{
		func() error { _, err := w.engine.Reservation(t.Context(), w.s, "r1"); return err },
		func() error { _, _, err := w.engine.RefundCheck(t.Context(), w.s, check.ID, "k"); return err },
		func() error {
			settle := settled("r1")
			_, _, err := w.engine.ChangeReservation(t.Context(), w.s, &settle)
			return err
		},
	} {
		if err := call(); !problem.Is(err, problem.NotFound) {
			t.Errorf("call %d: %v, want not found", i, err)
		}
		if lines := strings.Count(log.String(), "its record is invalid"); lines != i+1 {
			t.Errorf("call %d: %d lines in the log: %s", i, lines, log.String())
		}
	}
	w.is(w.left(), "3 30", "left")
}
