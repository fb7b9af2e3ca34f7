package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// moment is when the tests read the nodes, by the database's clock.
var moment = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newest is the database's revision.
const newest = 40

// well is a node of which there is nothing to say, seen two seconds ago.
func well(name string) Node {
	at := moment.Add(-2 * time.Second)
	return Node{
		ID: "id of " + name, Name: name, Version: "1.2.3", StartedAt: at.Add(-time.Hour), At: at, SeenAt: at.Add(3 * time.Millisecond),
		Limiter: LimiterRedis, Sharing: 1,
		Redis:    Redis{Reachable: true, Since: at.Add(-time.Hour), MaxMemoryPolicy: "noeviction"},
		Snapshot: Snapshot{Revision: newest, ConfirmedAt: at.Add(-400 * time.Millisecond), Listening: true},
		Counts:   Counts{WaitingRows: 300, Waiting: time.Second},
	}
}

// skew moves a node's clock, and with it all that it says by it.
func skew(n *Node, d time.Duration) {
	for _, t := range []*time.Time{&n.StartedAt, &n.At, &n.Redis.Since, &n.Snapshot.ConfirmedAt} {
		*t = t.Add(d)
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	tests := []struct {
		name   string
		change func(*Node)
		others int
		want   []string // level, code and text
	}{
		{"well", func(*Node) {}, 0, nil},
		{"alone in process", func(n *Node) { n.Limiter, n.Redis = LimiterInProcess, Redis{} }, 0, nil},
		{"redis not asked yet for its policy", func(n *Node) { n.Redis.MaxMemoryPolicy = "" }, 0, nil},

		{"one report missed", func(n *Node) {
			skew(n, -seconds(13))
			n.SeenAt = moment.Add(-seconds(15))
		}, 0, nil},
		{"silent", func(n *Node) { n.SeenAt = moment.Add(-seconds(40)) }, 0, []string{"alarm silent: silent for 40 s"}},
		{"silent with what waited", func(n *Node) {
			n.SeenAt = moment.Add(-seconds(40))
			n.Counts = Counts{WaitingRows: 12_000, Waiting: time.Minute}
		}, 0, []string{"alarm silent: silent for 40 s; 12,000 rows of counts were not in the database"}},
		{"silent while it stopped", func(n *Node) { n.SeenAt, n.Draining = moment.Add(-seconds(200)), true }, 0, []string{"alarm silent: silent for 3 min, since it began to stop"}},
		{"silent for long", func(n *Node) { n.SeenAt = moment.Add(-5 * time.Hour) }, 0, []string{"alarm silent: silent for 5 h"}},
		{"silent and all else wrong", func(n *Node) {
			n.SeenAt, n.Redis.Reachable, n.Snapshot.Listening, n.Snapshot.Held = moment.Add(-seconds(16)), false, false, "x"
		}, 0, []string{"alarm silent: silent for 16 s"}},
		{"unreadable", func(n *Node) { *n = Node{ID: n.ID, Name: n.Name, SeenAt: n.SeenAt, Unreadable: true} }, 0, []string{"warning unreadable: its report cannot be read by this release"}},
		{"stopping", func(n *Node) { n.Draining = true }, 0, []string{"note stopping: is stopping and finishes running requests"}},

		{"redis away", func(n *Node) { n.Redis.Reachable, n.Redis.Since = false, n.At.Add(-seconds(38)) }, 0, []string{"alarm redis_away: Redis unreachable for 39 s"}},
		{"redis away by a wrong clock", func(n *Node) {
			n.Redis.Reachable, n.Redis.Since = false, n.At.Add(-seconds(38))
			skew(n, time.Hour)
		}, 0, []string{"alarm redis_away: Redis unreachable for 39 s", "warning clock: its clock is 59 min ahead of the database's"}},
		{"redis away, with the error", func(n *Node) {
			n.Redis.Reachable, n.Redis.Since, n.Redis.Err = false, n.At.Add(-seconds(38)), "refused"
		}, 0, []string{"alarm redis_away: Redis unreachable for 39 s: refused"}},
		{"redis refuses", func(n *Node) { n.Redis.Refusal = Refusal{n.At.Add(-seconds(38)), "OOM", "OOM command not allowed"} }, 0, []string{"alarm redis_refuses: Redis refuses writes for 39 s: OOM command not allowed"}},
		{"redis lost counts", func(n *Node) { n.Redis.LostAt, n.Redis.Lost = n.At.Add(-seconds(38)), "Redis restarted" }, 0, []string{"alarm redis_lost: Redis lost counts 39 s ago: Redis restarted"}},
		{"redis lost counts long ago", func(n *Node) { n.Redis.LostAt, n.Redis.Lost = n.At.Add(-3*time.Hour), "Redis restarted" }, 0, []string{"note redis_lost: Redis lost counts 3 h ago: Redis restarted"}},
		{"redis lost counts days ago", func(n *Node) { n.Redis.LostAt = n.At.Add(-25 * time.Hour) }, 0, nil},
		{"the database refuses", func(n *Node) { n.Database.Refusal = Refusal{n.At.Add(-seconds(38)), "full", "no space"} }, 0, []string{"alarm database_refuses: the database refuses writes for 39 s: no space"}},
		{"counts waiting, with the error", func(n *Node) {
			n.Counts = Counts{WaitingRows: 12_000, Waiting: seconds(30), Failure: "no space"}
		}, 0, []string{"warning waiting: counts waiting: 12,000 rows, the oldest for 31 s: no space"}},
		{"redis has little memory", func(n *Node) { n.Redis.UsedMemory, n.Redis.MaxMemory = 85, 100 }, 0, []string{"warning redis_memory: Redis uses 85% of the memory that it may use"}},
		{"redis has memory", func(n *Node) { n.Redis.UsedMemory, n.Redis.MaxMemory = 79, 100 }, 0, nil},
		{"tenants are full", func(n *Node) {
			n.Redis.Keys = []TenantKeys{{"acme", 1001, 1000, true}, {"globex", 800, 1000, false}, {"initech", 799, 1000, false}}
		}, 0, []string{
			"warning tenant_full: tenant acme has as many counters as it may have (1,000 counters): new keys share one counter for each limit",
			"warning tenant_nearly_full: tenant globex has 80% of the counters that it may have",
		}},
		{"redis may evict", func(n *Node) { n.Redis.MaxMemoryPolicy = "allkeys-lru" }, 0, []string{"warning redis_evicts: Redis may forget counters when its memory is full: its maxmemory-policy is allkeys-lru"}},
		{"redis disagreed", func(n *Node) { n.Redis.Mismatches = 1 }, 0, []string{"warning redis_mismatches: Redis decided 1 request differently from the reference"}},

		{"two in process", func(n *Node) { n.Limiter, n.Redis = LimiterInProcess, Redis{} }, 1, []string{"alarm alone: counts without Redis, but 2 nodes run: each allows the whole quota"}},
		{"the last of a restart in process", func(n *Node) { n.Limiter, n.Redis, n.Draining = LimiterInProcess, Redis{}, true }, 1, []string{"note stopping: is stopping and finishes running requests"}},
		{"more nodes than were set", func(*Node) {}, 2, []string{"warning sharing: HEADGATE_NODES is 1, and 3 nodes run: while Redis is unreachable, they allow more than the limits"}},
		{"nodes that are counted", func(n *Node) { n.Sharing = 0 }, 2, nil},
		{"as many nodes as were set", func(n *Node) { n.Sharing = 3 }, 2, nil},
		{"fewer nodes than were set", func(n *Node) { n.Sharing = 9 }, 2, nil},

		{"an edit of a moment ago", func(n *Node) { n.Snapshot.Revision = newest - 3 }, 0, nil},
		{"behind", func(n *Node) { n.Snapshot.Revision, n.Snapshot.ConfirmedAt = newest-3, n.At.Add(-seconds(10.5)) }, 0, []string{"alarm behind: behind by 3 revisions for 12 s"}},
		{"behind by one, by a wrong clock", func(n *Node) {
			n.Snapshot.Revision, n.Snapshot.ConfirmedAt = newest-1, n.At.Add(-seconds(10.5))
			skew(n, -time.Minute)
		}, 0, []string{"alarm behind: behind by 1 revision for 12 s", "warning clock: its clock is 60 s behind the database's"}},
		{"not heard from the database", func(n *Node) { n.Snapshot.ConfirmedAt = n.At.Add(-seconds(10.5)) }, 0, []string{"alarm unconfirmed: revision not confirmed by the database for 12 s"}},
		{"held", func(n *Node) {
			n.Snapshot.Held, n.Snapshot.Revision, n.Snapshot.ConfirmedAt = "tenants vanished", newest-3, n.At.Add(-time.Hour)
		}, 0, []string{"alarm held: keeps its snapshot instead of a newer state of the database: tenants vanished"}},
		{"not listening", func(n *Node) { n.Snapshot.Listening = false }, 0, []string{"warning deaf: receives no notifications of changes and polls for them"}},
		{"problems", func(n *Node) { n.Snapshot.Problems = 2 }, 0, []string{"warning problems: 2 objects cannot be used as stored"}},

		{"counts of a slow flush", func(n *Node) { n.Counts = Counts{WaitingRows: 90_000, Waiting: seconds(10)} }, 0, nil},
		{"counts waiting", func(n *Node) { n.Counts = Counts{WaitingRows: 12_000, Waiting: seconds(30)} }, 0, []string{"warning waiting: counts waiting: 12,000 rows, the oldest for 31 s"}},

		{"a clock within bounds", func(n *Node) { n.SeenAt = n.At.Add(putTimeout) }, 0, nil},
		{"gravest first", func(n *Node) {
			n.Draining, n.Snapshot.Problems, n.Redis.Reachable, n.Redis.Since = true, 1, false, n.At
		}, 0, []string{"alarm redis_away: Redis unreachable for 1 s", "warning problems: 1 object cannot be used as stored", "note stopping: is stopping and finishes running requests"}},
	}
	codes := map[string]bool{}
	for _, test := range tests {
		for _, line := range test.want {
			_, rest, _ := strings.Cut(line, " ")
			code, _, _ := strings.Cut(rest, ":")
			codes[code] = true
		}
		t.Run(test.name, func(t *testing.T) {
			c := Census{At: moment, Revision: newest, Nodes: []Node{well("a")}}
			test.change(&c.Nodes[0])
			for i := range test.others {
				c.Nodes = append(c.Nodes, well(fmt.Sprintf("b%d", i)))
			}
			o := OverviewOf(c)
			var got []string
			for _, v := range o.Nodes[0].Verdicts {
				got = append(got, fmt.Sprintf("%s %s: %s", v.Level, v.Code, v.Text))
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, code := range []string{
		"silent", "unreadable", "stopping", "redis_away", "redis_refuses", "redis_lost", "database_refuses", "redis_memory", "tenant_full", "tenant_nearly_full", "redis_evicts", "redis_mismatches", "alone", "sharing",
		"behind", "unconfirmed", "held", "deaf", "problems", "waiting", "clock",
	} {
		if !codes[code] {
			t.Errorf("no test shows %q", code)
		}
		delete(codes, code)
	}
	if len(codes) > 0 {
		t.Errorf("codes that are not listed: %v", codes)
	}
}

func TestOverview(t *testing.T) {
	t.Parallel()
	c, a, gone, stuck := well("c"), well("a"), well("a"), well("d")
	c.Version = "1.3.0"
	gone.ID, gone.StartedAt, gone.SeenAt, gone.Version = "gone", gone.StartedAt.Add(-time.Hour), moment.Add(-time.Minute), "0.9.0"
	stuck.Snapshot.Revision, stuck.Snapshot.ConfirmedAt = newest-5, stuck.At.Add(-time.Minute)
	ahead := well("e") // it took an edit after the census read the revision
	ahead.Snapshot.Revision = newest + 1
	for _, n := range []*Node{&c, &a, &stuck, &ahead} {
		n.Sharing = 4
	}
	o := OverviewOf(Census{At: moment, Revision: newest, Nodes: []Node{c, a, gone, stuck, ahead}})
	type line struct {
		ID               string
		Silent           bool
		Up, SilentFor, C time.Duration
		Behind           int64
		Level            string
	}
	var got []line
	for _, r := range o.Nodes {
		got = append(got, line{r.ID, r.Silent, r.Up, r.SilentFor, r.Confirmed.Round(time.Second / 10), r.Behind, r.Level().String()})
	}
	const seen, confirmed = 1997 * time.Millisecond, 2400 * time.Millisecond
	want := []line{
		{"gone", true, 2 * time.Hour, time.Minute, time.Minute + 400*time.Millisecond, 0, "alarm"},
		{"id of a", false, time.Hour, seen, confirmed, 0, "well"},
		{"id of c", false, time.Hour, seen, confirmed, 0, "well"},
		{"id of d", false, time.Hour, seen, time.Minute + 2*time.Second, 5, "alarm"},
		{"id of e", false, time.Hour, seen, confirmed, 0, "well"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Release{{"1.2.3", 3}, {"1.3.0", 1}}, o.Versions); diff != "" || o.OneVersion() {
		t.Errorf("one version %t, versions (-want +got):\n%s", o.OneVersion(), diff)
	}
	if o.Silent != 1 || o.Unwell != 2 || o.Revision != newest || !o.At.Equal(moment) {
		t.Errorf("%d silent, %d unwell, revision %d at %s", o.Silent, o.Unwell, o.Revision, o.At)
	}
	if empty := OverviewOf(Census{At: moment}); !empty.OneVersion() || len(empty.Nodes) != 0 {
		t.Errorf("of no nodes: %+v", empty)
	}
}

// A node whose database refuses writes shows its own report, and does not call the
// others silent that cannot report either.
func TestOverviewOfADatabaseThatRefuses(t *testing.T) {
	t.Parallel()
	own, stored, other, gone := well("a"), well("a"), well("b"), well("c")
	now := time.Now()
	own.At, own.Snapshot.ConfirmedAt, own.StartedAt, own.Redis.Since = now, now, now.Add(-time.Hour), now.Add(-time.Hour)
	own.Database.Refusal = Refusal{now.Add(-40 * time.Second), "read_only", "the database is read-only"}
	stored.SeenAt, other.SeenAt, gone.SeenAt = now.Add(-45*time.Second), now.Add(-42*time.Second), now.Add(-3*time.Minute)
	store := &fixed{Census{At: now, Revision: newest, Nodes: []Node{stored, other, gone}}}
	s, b := NewService(store), NewBeacon(Config{Store: &refusing{}, Report: func(context.Context) Node { return own }})
	s.ShowOwn(b)
	b.report(t.Context())
	o, err := s.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range o.Nodes {
		for _, v := range n.Verdicts {
			got = append(got, fmt.Sprintf("%s: %s %s: %s", n.Name, v.Level, v.Code, v.Text))
		}
	}
	want := []string{
		"a: alarm database_refuses: the database refuses writes for 40 s: the database is read-only",
		"b: warning unreported: no report for 42 s: the database rejects writes",
		"c: alarm silent: silent for 3 min",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// fixed is a Store with one Census.
type fixed struct{ census Census }

func (f *fixed) PutNode(context.Context, Node) error      { return nil }
func (f *fixed) RemoveNode(context.Context, string) error { return nil }
func (f *fixed) Census(context.Context) (Census, error)   { return f.census, nil }

// refusing is a Store that takes no reports.
type refusing struct{ fixed }

func (*refusing) PutNode(context.Context, Node) error { return errors.New("read-only") }

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 s", 999 * time.Millisecond: "0 s", 119 * time.Second: "119 s", 2 * time.Minute: "2 min", 119 * time.Minute: "119 min",
		2 * time.Hour: "2 h", 47 * time.Hour: "47 h", 48 * time.Hour: "2 days", 1500 * 24 * time.Hour: "1,500 days",
	} {
		if got := span(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	if r := (Counts{Decisions: 25, Interval: 5 * time.Second}).Rate(); r != 5 {
		t.Errorf("rate %v, want 5", r)
	}
	if r := (Counts{Decisions: 25}).Rate(); r != 0 {
		t.Errorf("rate %v of no time", r)
	}
}
