//go:build !quick

package redis_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// idempotent returns a request with the idempotency key n.
func idempotent(n uint64, charges ...enforcement.Charge) enforcement.Request {
	r := request(charges...)
	r.ID = [16]byte{byte(n), 1}
	r.Idempotency = &enforcement.Idempotency{Key: enforcement.Key{Tenant: 7, Cell: enforcement.IdempotencyCell}}
	binary.LittleEndian.PutUint64(r.Idempotency.Key.Partition[:], n)
	return r
}

// losing returns a limiter, and a function that takes a request on the same server over a
// connection that loses the reply.
func losing(t *testing.T) (direct *redis.Limiter, loseReply func(enforcement.Request)) {
	t.Helper()
	url, prefix := servertest.Redis(t), newPrefix()
	proxy := servertest.StartProxy(t, url)
	through := open(t, redis.Config{URL: proxy.URL(), Prefix: prefix})
	return open(t, redis.Config{URL: url, Prefix: prefix}), func(r enforcement.Request) {
		t.Helper()
		lost := proxy.Lose(servertest.Loss{Request: "evalsha"})
		o := take(t.Context(), through, r)
		<-lost
		if o.Verdict != enforcement.Unknown {
			t.Fatalf("verdict %s, want unknown", o.Verdict)
		}
	}
}

// If the reply is lost, the repetition gets the decision that was made.
func TestLostReplyOfAnIdempotentCheck(t *testing.T) {
	t.Parallel()
	direct, loseReply := losing(t)
	mustTake(t, direct, idempotent(1, charge(1, perHour, 1))) // so that the script is known
	loseReply(idempotent(2, charge(1, perHour, 1)))
	again := idempotent(2, charge(1, perHour, 1))
	again.ID[1] = 2
	o := mustTake(t, direct, again)
	if !o.Replayed || o.First != [16]byte{2, 1} || o.Charges[0].State.A != 2 {
		t.Errorf("the repetition: %+v", o)
	}
	if n := used(t, direct, 1); n != 2 {
		t.Errorf("%d charges, want 1 beside the first", n)
	}
}

// A record lives for the period, needs little memory, and does no harm if it is damaged.
func TestRecords(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	l := open(t, redis.Config{URL: server.URL(), Prefix: "hg:"})
	mustTake(t, l, idempotent(0, charge(2, perHour, 1), charge(1, perHour, 1)))
	names := raw.Keys(t.Context(), "*").Val()
	name := ""
	for _, n := range names {
		if life := raw.PTTL(t.Context(), n).Val(); life > 0 && life <= enforcement.IdempotencyPeriod {
			name = n
		}
	}
	if life := raw.PTTL(t.Context(), name).Val(); name == "" || life < enforcement.IdempotencyPeriod-time.Minute {
		t.Fatalf("no record among %q", names)
	}
	for _, damaged := range []string{
		"", "x", "\x03", strings.Repeat("\x03", 123), strings.Repeat("\x03", 1<<16), raw.Get(t.Context(), name).Val() + "x", "\x01" + raw.Get(t.Context(), name).Val()[1:],
	} {
		raw.Set(t.Context(), name, damaged, time.Hour)
		if o := mustTake(t, l, idempotent(0, charge(2, perHour, 1), charge(1, perHour, 1))); o.Replayed || o.Verdict != enforcement.Granted {
			t.Errorf("%.20q: %+v", damaged, o)
		}
		if o := mustTake(t, l, idempotent(0, charge(2, perHour, 1), charge(1, perHour, 1))); !o.Replayed {
			t.Errorf("%.20q: there is no new record", damaged)
		}
	}
	raw.Del(t.Context(), name)
	raw.LPush(t.Context(), name, "x")
	if o := mustTake(t, l, idempotent(0, charge(2, perHour, 1), charge(1, perHour, 1))); o.Replayed || o.Verdict != enforcement.Granted {
		t.Errorf("a list: %+v", o)
	}

	running(t, l)
	memory := func() (bytes int) {
		_, rest, _ := strings.Cut(raw.Info(t.Context(), "memory").Val(), "\nused_memory:")
		if _, err := fmt.Sscan(rest, &bytes); err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	const records = 1 << 14
	before := memory()
	requests, outcomes := make([]enforcement.Request, records), make([]enforcement.Outcome, records)
	for i := range requests {
		requests[i] = idempotent(uint64(i+1), charge(2, perHour, 0), charge(1, perHour, 0))
	}
	l.Take(t.Context(), requests, outcomes)
	for i := range outcomes {
		if outcomes[i].Verdict != enforcement.Granted {
			t.Fatal(i, outcomes[i].Verdict, outcomes[i].Err)
		}
	}
	eventually(t, "the records count as keys of the tenant", func() bool {
		k, err := l.KeysOf(t.Context(), "07", 7, []uint32{1, 2}, 0)
		return err == nil && k.Live >= 2*records && k.Live < 2*records+50
	})
	each := (memory() - before) / records
	if t.Logf("a record of two charges takes %d bytes", each); each < 100 || each > 300 {
		t.Errorf("a record of two charges takes %d bytes; docs/settings.md says about 300", each)
	}
}
