//go:build !quick

package redis_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
)

// patience is a deadline for tests in which time is not the point.
const patience = 30 * time.Second

// newPrefix is a prefix that no other test uses.
func newPrefix() string { return "t" + rand.Text() + ":" }

// open makes a Limiter that ends with the test.
func open(t testing.TB, config redis.Config) *redis.Limiter {
	t.Helper()
	if config.Prefix == "" {
		config.Prefix = newPrefix()
	}
	if config.Timeout == 0 {
		config.Timeout = patience
	}
	l, err := redis.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// client is a plain client beside ours, for looking and for doing damage.
func client(t testing.TB, url string) *goredis.Client {
	t.Helper()
	o, err := goredis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.DisableIdentity, o.ReadTimeout = -1, true, patience
	c := goredis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// running runs the Limiter's probes until the test ends.
func running(t testing.TB, l *redis.Limiter) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// eventually waits for something that must come, and fails the test when it does not.
func eventually(t testing.TB, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !happened(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond) // between two looks; nothing is expected by then
	}
}

var (
	perHour    = enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Hour}.Compile(1)
	perMinute  = enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1000, Window: time.Minute}.Compile(1)
	logPerHour = enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 1000, Window: time.Hour}.Compile(1)
)

func key(cell uint32) enforcement.Key {
	return enforcement.Key{Tenant: 7, Cell: cell, Partition: [16]byte{1, 2, 3, '}', '{', 0, '\r', '\n', 0xff}}
}

func charge(cell uint32, m *enforcement.Meter, cost int64) enforcement.Charge {
	return enforcement.Charge{Key: key(cell), Meter: m, Rev: m.Rev, Cost: cost}
}

func request(charges ...enforcement.Charge) enforcement.Request {
	return enforcement.Request{Home: "07", Charges: charges}
}

// take asks for one decision.
func take(ctx context.Context, l enforcement.Limiter, r enforcement.Request) enforcement.Outcome {
	outcomes := make([]enforcement.Outcome, 1)
	l.Take(ctx, []enforcement.Request{r}, outcomes)
	return outcomes[0]
}

// mustTake asks for one decision, which must be made.
func mustTake(t testing.TB, l enforcement.Limiter, r enforcement.Request) enforcement.Outcome {
	t.Helper()
	o := take(context.Background(), l, r)
	if !o.Verdict.Decided() {
		t.Fatalf("verdict %s: %v", o.Verdict, o.Err)
	}
	return o
}

// used is the count of a fixed window.
func used(t testing.TB, l enforcement.Limiter, cell uint32) int64 {
	t.Helper()
	r := request(charge(cell, perHour, 0))
	r.Mode = enforcement.Peek
	return mustTake(t, l, r).Charges[0].State.A
}
