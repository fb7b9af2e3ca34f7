//go:build cluster

package redis_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/limitertest"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// make test-cluster runs the tests of this file: the limiter suite, failovers and a
// resharding on a cluster of six servers and on a master with three Sentinels.

// suite runs the limiter suite and random sequences.
func suite(t *testing.T, url string) {
	factory := func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
		l := open(t, redis.Config{URL: url, Now: c.Now})
		t.Cleanup(func() {
			if s := l.Status(); s.Mismatches != 0 || s.Unreadable != 0 {
				t.Errorf("script and reference disagreed on %d requests, %d states were unreadable", s.Mismatches, s.Unreadable)
			}
		})
		return limitertest.Fixture{Limiter: l}
	}
	t.Run("Run", func(t *testing.T) { limitertest.Run(t, factory) })
	if os.Getenv("HEADGATE_TEST_CLUSTER") != "short" {
		t.Run("Sequences", func(t *testing.T) { limitertest.Sequences(t, factory, 0, 0) })
	}
}

func TestClusterSuite(t *testing.T) { suite(t, servertest.StartCluster(t, 1).URL()) }

func TestSentinelSuite(t *testing.T) { suite(t, servertest.StartSentinels(t).URL()) }

// A flood sends checks of many keys of all homes from several goroutines until it is
// stopped: alone, two keys at once, and several homes in one Take.
type flood struct {
	limiter   enforcement.Limiter
	stop      context.CancelFunc
	workers   sync.WaitGroup
	mu        sync.Mutex
	granted   map[place]int64
	unknown   map[place]int64
	undecided map[string]int // by home
	first     map[string]error
	checks    atomic.Int64
}

type place struct {
	home string
	cell uint32
}

const (
	floodQuota = 40
	floodCells = 200
)

var floodMeter = enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: floodQuota, Window: time.Hour}.Compile(1)

func startFlood(l enforcement.Limiter) *flood {
	ctx, stop := context.WithCancel(context.Background())
	f := &flood{
		limiter: l, stop: stop, granted: map[place]int64{}, unknown: map[place]int64{},
		undecided: map[string]int{}, first: map[string]error{},
	}
	for worker := range 8 {
		f.workers.Go(func() {
			for n := uint32(worker); ctx.Err() == nil; n += 7 {
				f.round(n)
			}
		})
	}
	return f
}

func (f *flood) round(n uint32) {
	all := homes()
	one := func(home string, cells ...uint32) enforcement.Request {
		var charges []enforcement.Charge
		for _, cell := range cells {
			charges = append(charges, charge(cell, floodMeter, 1))
		}
		r := request(charges...)
		r.Home = home
		return r
	}
	home, cell := all[n%64], 1+n/64%floodCells
	requests := []enforcement.Request{one(home, cell)}
	switch n % 3 {
	case 1:
		requests = []enforcement.Request{one(home, cell, 1+(n/64+1)%floodCells)}
	case 2:
		for i := range uint32(4) {
			requests = append(requests, one(all[(n+i*17)%64], cell))
		}
	}
	outcomes := make([]enforcement.Outcome, len(requests))
	f.limiter.Take(context.Background(), requests, outcomes)
	f.checks.Add(int64(len(requests)))
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range outcomes {
		o, r := &outcomes[i], &requests[i]
		for _, c := range r.Charges {
			at := place{r.Home, c.Key.Cell}
			switch o.Verdict {
			case enforcement.Granted:
				f.granted[at]++
			case enforcement.Unknown:
				f.unknown[at]++
			}
		}
		if !o.Verdict.Decided() {
			f.undecided[r.Home]++
			if f.first[r.Home] == nil {
				f.first[r.Home] = o.Err
			}
		}
	}
}

// end stops the flood and compares the counts in Redis with what was granted. exact
// reports whether a home's counts must be exact. It returns the number of lost charges
// and the most that a key exceeded its quota.
func (f *flood) end(t *testing.T, exact func(home string) bool) (lost, over int64) {
	t.Helper()
	f.stop()
	f.workers.Wait()
	keys := 0
	for at, granted := range f.granted {
		r := request(charge(at.cell, floodMeter, 0))
		r.Home, r.Mode = at.home, enforcement.Peek
		used := mustTake(t, f.limiter, r).Charges[0].State.A
		keys++
		over = max(over, granted-floodQuota)
		lost += max(granted-used, 0)
		if used > granted+f.unknown[at] {
			t.Errorf("%v: %d used, %d granted, %d unknown: a double charge", at, used, granted, f.unknown[at])
		}
		if exact(at.home) && (used < granted || granted > floodQuota) {
			t.Errorf("%v: %d used, %d granted, quota %d", at, used, granted, floodQuota)
		}
	}
	t.Logf("%d checks of %d keys", f.checks.Load(), keys)
	return lost, over
}

// awaitChecks waits until the flood sent n more checks.
func (f *flood) awaitChecks(t *testing.T, n int64) {
	t.Helper()
	from := f.checks.Load()
	eventually(t, fmt.Sprintf("%d more checks", n), func() bool { return f.checks.Load()-from >= n })
}

// Slots that move under load change no verdict: all checks are decided, none sees MOVED,
// ASK or TRYAGAIN, and each key admits at most its quota.
func TestReshardingUnderLoad(t *testing.T) {
	group := servertest.StartCluster(t, 1)
	l := open(t, redis.Config{URL: group.URL(), Timeout: time.Second, Denials: -1})
	running(t, l)
	before := homesOf(t, group.URL())
	f := startFlood(l)
	f.awaitChecks(t, 2000)
	moved := 0
	for i, slots := range []string{"1500", "2000"} { // the 1,500 move twice
		if err := group.Reshard(group.Servers[i], group.Servers[i+1], slots); err != nil {
			t.Fatal(err)
		}
	}
	for home, at := range homesOf(t, group.URL()) {
		if before[home] != at {
			moved++
		}
	}
	f.awaitChecks(t, 2000)
	lost, over := f.end(t, func(string) bool { return true })
	if len(f.undecided) > 0 {
		t.Errorf("undecided by home: %v, first %v", f.undecided, f.first)
	}
	if moved == 0 || lost != 0 || over > 0 {
		t.Errorf("%d of 64 homes moved, %d charges lost, a quota exceeded by %d", moved, lost, over)
	}
	t.Logf("%d of 64 homes moved", moved)
	if s := l.Status(); s.Losses != 0 {
		t.Errorf("moved slots count as lost data: %s", s.Loss)
	}
}

// If a master is killed, its replica replaces it. Checks of other homes are decided all the
// time. Checks of its own homes are undecided until the failover, and lose at most the
// charges that were not replicated.
func TestFailoverOfACluster(t *testing.T) {
	group := servertest.StartCluster(t, 1)
	l := open(t, redis.Config{URL: group.URL(), Timeout: 500 * time.Millisecond, Denials: -1})
	running(t, l)
	before := homesOf(t, group.URL())
	dead := group.Servers[1]
	f := startFlood(l)
	f.awaitChecks(t, 2000)
	dead.Kill()
	began := time.Now()
	eventually(t, "the replica serves all homes", func() bool {
		for _, home := range homes() {
			r := request(charge(1, perHour, 0))
			r.Home, r.Mode = home, enforcement.Peek
			if !take(context.Background(), l, r).Verdict.Decided() {
				return false
			}
		}
		return l.Status().Reachable
	})
	t.Logf("all homes are decided %s after the kill", time.Since(began).Round(10*time.Millisecond))
	f.awaitChecks(t, 2000)
	lost, over := f.end(t, func(home string) bool { return before[home] != dead.Address() })
	for home, n := range f.undecided {
		if before[home] != dead.Address() {
			t.Errorf("home %s of another server: %d checks undecided: %v", home, n, f.first[home])
		}
	}
	if after := homesOf(t, group.URL()); after["00"] == "" {
		t.Error("no master of home 00")
	}
	t.Logf("%d charges lost, quotas of %d exceeded by at most %d", lost, floodQuota, over)
	if over > lost {
		t.Errorf("a quota is exceeded by %d, and only %d charges were lost", over, lost)
	}
}

// listening is the line of a subscribed connection that is at least two seconds old.
var listening = regexp.MustCompile(`age=([2-9]|\d\d+) .* sub=[1-9]`)

// When Sentinels promote a replica, nodes find it without a restart.
func TestFailoverBySentinel(t *testing.T) {
	group := servertest.StartSentinels(t)
	l := open(t, redis.Config{URL: group.URL(), Timeout: 500 * time.Millisecond, Denials: -1})
	running(t, l)
	// The timeout of calls does not end the connection that listens for a new master.
	var sentinels []*goredis.Client
	for _, s := range group.Sentinels {
		sentinels = append(sentinels, client(t, s.URL()))
	}
	eventually(t, "a connection listens to a Sentinel for two seconds", func() bool {
		return slices.ContainsFunc(sentinels, func(c *goredis.Client) bool {
			list, _ := c.Do(t.Context(), "client", "list").Text()
			return listening.MatchString(list)
		})
	})
	f := startFlood(l)
	f.awaitChecks(t, 2000)
	group.Master.Kill()
	began := time.Now()
	replica := client(t, group.Replica.URL())
	eventually(t, "the replica is the master, and decides", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "role:master") &&
			take(context.Background(), l, request(charge(1, perHour, 1))).Verdict == enforcement.Granted && l.Status().Reachable
	})
	t.Logf("decided %s after the kill", time.Since(began).Round(10*time.Millisecond))
	f.awaitChecks(t, 2000)
	lost, over := f.end(t, func(string) bool { return false })
	t.Logf("%d charges lost, quotas of %d exceeded by at most %d", lost, floodQuota, over)
	if over > lost {
		t.Errorf("a quota is exceeded by %d, and only %d charges were lost", over, lost)
	}
	if n, err := replica.DBSize(t.Context()).Result(); err != nil || n == 0 {
		t.Errorf("the replica has %d keys, %v", n, err)
	}
}
