//go:build !quick

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// homes are the homes that tenants share.
func homes() (list []string) {
	for i := range 64 {
		list = append(list, fmt.Sprintf("%02x", i))
	}
	return list
}

// homesOf returns for each home the address of its master.
func homesOf(t testing.TB, url string) map[string]string {
	t.Helper()
	o, err := goredis.ParseClusterURL(redis.ClusterURL(url))
	if err != nil {
		t.Fatal(err)
	}
	c := goredis.NewClusterClient(o)
	defer c.Close()
	at := map[string]string{}
	for _, home := range homes() {
		master, err := c.MasterForKey(t.Context(), "{"+home+"}")
		if err != nil {
			t.Fatal(err)
		}
		at[home] = master.Options().Addr
	}
	return at
}

// A ledger compares what was granted with what Redis counted.
type ledger struct{ granted, unknown map[string]int64 }

func (g *ledger) take(l enforcement.Limiter, home string) enforcement.Outcome {
	r := request(charge(1, perHour, 1))
	r.Home = home
	o := take(context.Background(), l, r)
	switch o.Verdict {
	case enforcement.Granted:
		g.granted[home]++
	case enforcement.Unknown:
		g.unknown[home]++
	}
	return o
}

// settle fails the test unless each home counted what was granted, and at most what is
// unknown beside it. less is how much each count may lack.
func (g *ledger) settle(t *testing.T, l enforcement.Limiter, less map[string]int64) {
	t.Helper()
	for _, home := range homes() {
		r := request(charge(1, perHour, 0))
		r.Home, r.Mode = home, enforcement.Peek
		used := mustTake(t, l, r).Charges[0].State.A
		if used < g.granted[home]-less[home] || used > g.granted[home]+g.unknown[home] {
			t.Errorf("home %s: %d used, %d granted, %d unknown", home, used, g.granted[home], g.unknown[home])
		}
	}
}

func newLedger() *ledger { return &ledger{granted: map[string]int64{}, unknown: map[string]int64{}} }

// A server of a cluster that hangs has a breaker of its own: no calls are made to it, the
// homes of the others are decided, and a probe notices that it is back.
func TestServerOfAClusterAway(t *testing.T) {
	t.Parallel()
	group := servertest.StartCluster(t, 0)
	l := open(t, redis.Config{URL: group.URL(), Timeout: 500 * time.Millisecond, Denials: -1})
	running(t, l)
	at, away := homesOf(t, group.URL()), group.Servers[1]
	g := newLedger()
	for _, home := range homes() {
		if o := g.take(l, home); o.Verdict != enforcement.Granted {
			t.Fatalf("home %s: %s, %v", home, o.Verdict, o.Err)
		}
	}
	if s := l.Status(); !s.Reachable || s.Servers != 3 || s.ServersAway != 0 {
		t.Fatalf("a healthy cluster: %+v", s)
	}
	away.Pause()
	eventually(t, "the breaker opens", func() bool {
		for home := range at {
			if at[home] == away.Address() {
				g.take(l, home)
				break
			}
		}
		return l.Status().ServersAway == 1
	})
	calls := l.Status().Calls
	decided := int64(0)
	for _, home := range homes() {
		switch o := g.take(l, home); {
		case at[home] == away.Address():
			if !errors.Is(o.Err, enforcement.ErrNotReached) {
				t.Errorf("home %s of the server that hangs: %s, %v, want no call", home, o.Verdict, o.Err)
			}
		case o.Verdict != enforcement.Granted:
			t.Errorf("home %s of another server: %s, %v", home, o.Verdict, o.Err)
		default:
			decided++
		}
	}
	if s := l.Status(); s.Reachable || s.Err == nil || s.BreakerOpened != 1 || s.Calls-calls != decided {
		t.Errorf("while one server hangs: %+v, want %d calls more than %d", s, decided, calls)
	}
	away.Resume()
	eventually(t, "the breaker closes", func() bool { return l.Status().Reachable })
	for _, home := range homes() {
		eventually(t, "home "+home+" is decided", func() bool { return g.take(l, home).Verdict == enforcement.Granted })
	}
	g.settle(t, l, nil)
}
