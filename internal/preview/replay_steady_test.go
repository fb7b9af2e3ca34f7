package preview_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// steady are requests of one key, one every two seconds, so that it is never idle.
func steady(n int) (list []request) {
	for i := range n {
		list = append(list, request{at: noon.Add(time.Duration(2*i) * time.Second), check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: "u"}},
		}})
	}
	return list
}

// The counters of a key that is never idle are known after one window, because a replay follows the trace
// until then. The range begins later than the server.
func TestAKeyThatIsNeverIdleIsReplayed(t *testing.T) {
	t.Parallel()
	requests := steady(900)
	from, to := noon.Add(11*time.Minute), noon.Add(21*time.Minute)
	for _, test := range []struct {
		published, draft string
		slack            int64
	}{
		{"3/10s sliding_window_log", "3/10s sliding_window_log", 0},
		{"3/10s sliding_window_log", "2/10s sliding_window_log", 3},
		{"3/10s sliding_window_log", "2/10s gcra", 3},
		{"3/10s token_bucket", "2/10s token_bucket", 3},
		{"3/10s fixed_window", "2/10s sliding_window_log", 3},
		{"3/10s sliding_window_counter clock", "2/10s sliding_window_log", 3},
		{"3/10s sliding_window_log", "2/10s fixed_window clock", 0},
	} {
		name := test.published + " to " + test.draft
		published, draft := document(onePolicy("users", test.published, byUser)), document(onePolicy("users", test.draft, byUser))
		w, who := traced(t, published, requests)
		w.draft(t, "p", draft)
		got, err := w.preview.Draft(t.Context(), "p", from, to)
		if err != nil {
			t.Fatal(err)
		}
		counted, want := w.between(t, who[0], from, to), truthBetween(t, draft, who, requests, from, to)
		p := got.Policies[0]
		if p.Replay == nil || p.Replay.Keys != 1 || p.Replay.Requests != 300 || p.Replay.Published != counted || p.Replay.LeftOut+p.Replay.Parts != 0 {
			t.Errorf("%s: %+v, counted %d", name, p.Replay, counted)
			continue
		}
		if diff := p.Replay.Draft - want; diff < -test.slack || diff > test.slack || want == 0 {
			t.Errorf("%s: the replay denies %d, in truth %d", name, p.Replay.Draft, want)
		}
		if published.Policies[0].Limits[0] == draft.Policies[0].Limits[0] && p.Replay.Draft != counted {
			t.Errorf("%s: the same policy denies %d, not %d", name, p.Replay.Draft, counted)
		}
		if f := p.Draft; f == nil || f.Low > want || f.High < want || f.High-f.Low > 2*test.slack {
			t.Errorf("%s: %s %+v, in truth %d: %s", name, p.Certainty, f, want, p.Why)
		}
		if got.AtLeast == 0 || got.AtLeast > want {
			t.Errorf("%s: at least %d, in truth %d", name, got.AtLeast, want)
		}
	}
}

// between returns the denials of a policy in a part of the time.
func (w *world) between(t *testing.T, who tenants.Tenant, from, to time.Time) int64 {
	t.Helper()
	rows, _, err := w.analytics.Sums(t.Context(), metrics.SumQuery{
		From: from, To: to, Tenants: []uint32{who.Number}, Kind: metrics.KindPolicy, Names: []string{"users"},
	})
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	return rows[0].Limited()
}

func truthBetween(t *testing.T, d plans.Content, who []tenants.Tenant, requests []request, from, to time.Time) int64 {
	t.Helper()
	w := newWorld(t, nil)
	w.decide(t, w.store, d, who, 1, requests)
	w.set(noon.Add(48 * time.Hour))
	return w.between(t, who[0], from, to)
}

// If counters were reset, the replay decides otherwise than it was decided. The key is left out until its
// counters are known again, and not for the whole range.
func TestAKeyIsLeftOutUntilItsCountersAreKnownAgain(t *testing.T) {
	t.Parallel()
	published, draft := document(onePolicy("users", "3/1m sliding_window_log", byUser)), document(onePolicy("users", "2/1m sliding_window_log", byUser))
	w := newWorld(t, replaying)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	requests := steady(900)
	w.reset = requests[310].at // ten minutes and a half after noon
	w.decide(t, w.store, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	p := w.look(t, draft).Policies[0]
	if p.Replay == nil || p.Replay.Keys != 1 || p.Replay.Parts != 1 || p.Replay.LeftOut != 0 || p.Replay.Requests < 900-2*60 || p.Replay.Requests > 900-30 {
		t.Fatalf("%+v", p.Replay)
	}
	if text := p.Replay.String(); !strings.Contains(text, "Of 1 key, a part of the time is left out") || strings.Contains(text, "override") {
		t.Errorf("%q", text)
	}
	if got := w.look(t, draft).Replay; got.Requests != p.Replay.Requests || got.Draft != p.Replay.Draft {
		t.Errorf("%+v is not %+v", got, p.Replay)
	}
}

// Calendar windows are replayed by the calendar of the tenant.
func TestCalendarWindowsAreReplayed(t *testing.T) {
	t.Parallel()
	day := func(quota int64) plans.Content {
		l := enforcement.Limit{Name: "l1", Quota: quota, Algorithm: enforcement.FixedWindow, Period: enforcement.Day, Window: enforcement.Day.Longest(), Anchor: enforcement.ByCalendar}
		return document(plans.Policy{Slug: "users", Match: plans.Match{Path: "/a/*"}, CountBy: []string{"user"}, Limits: []enforcement.Limit{l}})
	}
	w := newWorld(t, replaying)
	w.publish(t, "p", day(100))
	made, err := w.tenants.CreateTenant(context.Background(), "acme", tenants.Document{Name: "acme", Plan: "p", TimeZone: "Asia/Kathmandu"})
	if err != nil {
		t.Fatal(err)
	}
	requests := steady(400)
	for i := range requests { // five and a half hours, across midnight in Kathmandu at 18:15 UTC
		requests[i].at = noon.Add(4*time.Hour + time.Duration(50*i)*time.Second)
	}
	w.decide(t, w.store, day(100), []tenants.Tenant{made}, 1, requests)
	w.set(noon.Add(12 * time.Hour))
	p := w.look(t, day(60)).Policies[0]
	if p.Replay == nil || p.Replay.Requests != 400 || p.Replay.Published != 400-2*100 || p.Replay.Draft != 400-2*60 || p.Draft == nil || p.Draft.Low != 280 || p.Draft.High != 280 {
		t.Errorf("%+v, %+v: %s", p.Replay, p.Draft, fmt.Sprint(p.Certainty, p.Why))
	}
	if p.Certainty != preview.Estimated {
		t.Errorf("%s", p.Certainty)
	}
}

// One flooded minute has a sample of few keys. The replay has the rest of the time with all keys.
func TestAFloodedMinuteDoesNotThinOutTheReplay(t *testing.T) {
	t.Parallel()
	requests := asks(1200, 3, "/a/x")
	for i := range 4000 {
		requests = append(requests, request{at: noon.Add(18*time.Minute + time.Duration(i)*10*time.Millisecond), check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprint("flood", i%1000)}},
		}})
	}
	slices.SortStableFunc(requests, func(a, b request) int { return a.at.Compare(b.at) })
	published, draft := document(onePolicy("users", "10/1m fixed_window clock", byUser)), document(onePolicy("users", "5/1m fixed_window clock", byUser))
	w, _ := traced(t, published, requests)
	q := w.look(t, draft).Policies[0].Replay
	if q == nil || !q.All || q.Keys != 3 || q.Requests != 18*60 || q.Published != 18*30 || q.Draft != 18*45 {
		t.Errorf("%+v", q)
	}
}
