//go:build !quick

package redis_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// reservation returns a request that creates the reservation n for a time.
func reservation(n uint64, life time.Duration, charges ...enforcement.Charge) enforcement.Request {
	r := idempotent(n, charges...)
	r.Idempotency.Key.Cell = enforcement.ReservationCell
	r.Reservation = &enforcement.Reservation{
		Key: r.Idempotency.Key, Most: 100, Life: life.Microseconds(), Kept: time.Minute.Microseconds(), Data: []byte("data"),
	}
	return r
}

// settle returns the request that ends a reservation with one charge.
func settle(made *enforcement.Request, record *enforcement.Record, cost int64) enforcement.Request {
	r := *made
	r.ID, r.Mode, r.Idempotency = [16]byte{9}, enforcement.Adjust, nil
	c := made.Charges[0]
	c.Receipt = &enforcement.Receipt{Cost: c.Cost, State: record.Charged[0].State}
	c.Cost = cost
	v := *made.Reservation
	v.Version, v.Ends, v.Forgotten = record.Version, true, record.Forgotten()
	r.Charges, r.Reservation = []enforcement.Charge{c}, &v
	return r
}

// If the reply to a settle is lost, a repetition changes nothing: the difference is applied
// at most once.
func TestLostReplyOfASettle(t *testing.T) {
	t.Parallel()
	direct, loseReply := losing(t)
	made := reservation(1, time.Hour, charge(1, perHour, 6))
	o := mustTake(t, direct, made)
	request := settle(&made, o.Record, 2)
	loseReply(request)
	if again := take(t.Context(), direct, request); again.Verdict != enforcement.Stale {
		t.Errorf("the repetition: %s", again.Verdict)
	}
	read := enforcement.Request{Home: made.Home, Mode: enforcement.Peek, Reservation: &enforcement.Reservation{Key: made.Reservation.Key}}
	if got := mustTake(t, direct, read); got.Record == nil || got.Record.Open || got.Record.Applied[0] != -4 {
		t.Errorf("the record: %+v", got.Record)
	}
	if n := used(t, direct, 1); n != 2 {
		t.Errorf("%d units are used, want 2", n)
	}
}

// A damaged record counts as none, and a list of another type is replaced.
func TestDamagedReservations(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	l := open(t, redis.Config{URL: server.URL(), Prefix: "hg:"})
	made := reservation(1, time.Hour, charge(1, perHour, 6))
	mustTake(t, l, made)
	names := map[string]string{}
	for _, name := range raw.Keys(t.Context(), "*").Val() {
		names[raw.Type(t.Context(), name).Val()+string(name[len(name)-1])] = name
	}
	record := string(append([]byte("hg:{07}\x07\xff\xff\xff\xff\x0f"), made.Reservation.Key.Partition[:]...))
	value := raw.Get(t.Context(), record).Val()
	if len(value) < 100 || value[0] != 5 {
		t.Fatalf("no record among %q", raw.Keys(t.Context(), "*").Val())
	}
	if life := raw.PTTL(t.Context(), record).Val(); life < time.Hour || life > time.Hour+2*time.Minute {
		t.Errorf("the record lives %s, want an hour and a minute", life)
	}
	for _, damaged := range []string{"", "\x05", value[:80], "\x03" + value[1:], value[:65] + "\xff\xff" + value[67:]} {
		raw.Set(t.Context(), record, damaged, time.Hour)
		if o := mustTake(t, l, made); o.Replayed || o.Verdict != enforcement.Granted {
			t.Errorf("%.20q: %+v", damaged, o)
		}
	}
	for _, list := range []string{"hg:{07}\x07R", "hg:{07}R"} {
		if kind := raw.Type(t.Context(), list).Val(); kind != "zset" {
			t.Fatalf("%q is a %s", list, kind)
		}
		raw.Del(t.Context(), list)
		raw.Set(t.Context(), list, "x", 0)
	}
	if list, err := l.Outstanding(t.Context(), "07", 7, 0, [16]byte{}, 10); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	if due, err := l.Due(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("%v, %v", due, err)
	}
	mustTake(t, l, reservation(2, time.Hour, charge(1, perHour, 1)))
	if list, err := l.Outstanding(t.Context(), "07", 7, 0, [16]byte{}, 10); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if n, err := l.OutstandingTotal(t.Context()); err != nil || n != 1 {
		t.Errorf("%d outstanding, %v", n, err)
	}
}

// Only one node lists the reservations that are due. If it stops, another node does.
func TestOneNodeEndsReservations(t *testing.T) {
	t.Parallel()
	config := redis.Config{URL: servertest.StartRedis(t).URL(), Prefix: newPrefix()}
	a, b := open(t, config), open(t, config)
	made := reservation(1, time.Millisecond, charge(1, perHour, 6))
	record := mustTake(t, a, made).Record
	due := func(l *redis.Limiter) (n int) {
		list, err := l.Due(t.Context(), 10)
		if err != nil {
			t.Error(err)
		}
		return len(list)
	}
	eventually(t, "the first node lists it", func() bool { return due(a) == 1 })
	if due(b) != 0 {
		t.Error("the second node lists it too")
	}
	_ = a.Close()
	eventually(t, "the second node takes over", func() bool { return due(b) == 1 })
	end := settle(&made, record, 0)
	end.Reservation.Due = true
	if o := mustTake(t, b, end); o.Verdict != enforcement.Granted || due(b) != 0 || used(t, b, 1) != 0 {
		t.Errorf("%s, %d due, %d used", o.Verdict, due(b), used(t, b, 1))
	}

	// The record of a listed reservation may be gone, for example evicted.
	raw := client(t, config.URL)
	made = reservation(2, time.Millisecond, charge(1, perHour, 6))
	record = mustTake(t, b, made).Record
	raw.Del(t.Context(), string(append([]byte(config.Prefix+"{07}\x07\xff\xff\xff\xff\x0f"), made.Reservation.Key.Partition[:]...)))
	eventually(t, "it is due", func() bool { return due(b) == 1 })
	end = settle(&made, record, 0)
	end.Reservation.Due = true
	if o := take(t.Context(), b, end); o.Verdict != enforcement.Stale || due(b) != 0 {
		t.Errorf("%s, %d due", o.Verdict, due(b))
	}
}

// Records count as keys of the tenant until they are forgotten.
func TestReservationsAreKeys(t *testing.T) {
	t.Parallel()
	l := open(t, redis.Config{URL: servertest.StartRedis(t).URL(), Prefix: "hg:"})
	running(t, l)
	var requests []enforcement.Request
	for i := range uint64(600) {
		r := reservation(i, time.Hour, charge(1, perHour, 0))
		r.Reservation.Most = 1000
		requests = append(requests, r)
	}
	outcomes := make([]enforcement.Outcome, len(requests))
	l.Take(t.Context(), requests, outcomes)
	keys := func() int64 {
		k, err := l.KeysOf(t.Context(), "07", 7, []uint32{1}, 0)
		if err != nil {
			t.Error(err)
		}
		return k.Live
	}
	eventually(t, "each counts for 6 keys", func() bool { return keys() >= 3600 && keys() < 3700 })
	var settles []enforcement.Request
	for i := range requests {
		settles = append(settles, settle(&requests[i], outcomes[i].Record, 0))
	}
	l.Take(t.Context(), settles, outcomes)
	last := reservation(1000, time.Hour, charge(1, perHour, 0))
	last.Reservation.Most = 1000
	mustTake(t, l, last)
	eventually(t, "a settled one counts until it is forgotten, and once", func() bool { return keys() >= 3600 && keys() < 3700 })
}
