package preview_test

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// replaying lets a world replay traced requests.
func replaying(c *preview.Config) {
	c.NewLimiter = func(now func() int64) (enforcement.Limiter, func(), error) {
		return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
	}
}

// traced returns a world with a tenant whose requests were traced.
func traced(t *testing.T, published plans.Content, requests []request) (*world, []tenants.Tenant) {
	t.Helper()
	w := newWorld(t, replaying)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	w.decide(t, w.store, published, who, 2, requests)
	w.set(noon.Add(2 * time.Hour))
	return w, who
}

// Issue 13, 1.3: the requests of the keys in the trace are decided again, so that figures are exact
// where counts by minute have no answer: short windows, costs, and keys in shadow.
func TestTracedRequestsAreReplayed(t *testing.T) {
	t.Parallel()
	costly := asks(600, 4, "/a/x")
	for i := range costly {
		costly[i].at = costly[i].at.Add(time.Duration(i*i%900) * time.Millisecond)
		costly[i].check.Cost = 1 + int64(i%3)
	}
	for _, test := range []struct {
		name             string
		published, draft plans.Content
		requests         []request
	}{
		{"a short window", document(onePolicy("users", "9/1m fixed_window", byUser)), document(onePolicy("users", "1/10s sliding_window_log", byUser)), asks(600, 4, "/a/x")},
		{"costs", document(onePolicy("users", "40/1m gcra 20", byUser)), document(onePolicy("users", "20/1m token_bucket 9", byUser)), costly},
		{
			"keys in shadow", document(onePolicy("users", "9/1m fixed_window", func(p *plans.Policy) { byUser(p); inShadow(p) })),
			document(onePolicy("users", "7/1m sliding_window_counter", byUser)), asks(600, 4, "/a/x"),
		},
		{
			"policies together", document(onePolicy("all", "50/1m fixed_window", nil), onePolicy("users", "30/1m gcra", byUser)),
			document(onePolicy("all", "30/1m sliding_window_log", nil), onePolicy("users", "9/1m gcra", byUser)), asks(600, 4, "/a/x"),
		},
	} {
		w, who := traced(t, test.published, test.requests)
		got := w.look(t, test.draft)
		truth, counted := truth(t, test.draft, who, test.requests), w.counted(t, who)
		all, recorded := int64(0), int64(0)
		for _, p := range got.Policies {
			want, before := truth[p.Slug][who[0].Number], counted[p.Slug][who[0].Number]
			all, recorded = all+want.Limited(), recorded+before.Limited()+before.ShadowRefused
			q := p.Replay
			if q == nil || !q.All || q.LeftOut != 0 || q.Mixed || q.Requests != 600 || q.Draft != want.Limited() || q.Published != before.Limited()+before.ShadowRefused {
				t.Errorf("%s: %s: %+v, in truth %d, counted %d", test.name, p.Slug, q, want.Limited(), before.Limited()+before.ShadowRefused)
				continue
			}
			if f := p.Draft; f == nil || f.Refused != q.Draft || f.Low != q.Draft || f.High != q.Draft || p.Certainty == preview.NeedsShadow {
				t.Errorf("%s: %s: %s, %+v, in truth %d: %s", test.name, p.Slug, p.Certainty, f, q.Draft, p.Why)
			}
			if strings.Contains(p.Why, "order within a minute") {
				t.Errorf("%s: %s: beside an exact figure: %q", test.name, p.Slug, p.Why)
			}
			if text := q.String(); !strings.Contains(text, "all their 600 requests") || strings.Contains(text, "left out") {
				t.Errorf("%s: %q", test.name, text)
			}
		}
		r := got.Replay
		if r == nil || !r.All || r.Tenants != 1 || r.Requests != 600 || r.Draft != all || all == 0 {
			t.Fatalf("%s: %+v, in truth %d", test.name, r, all)
		}
		if got.Total == nil || got.Total.Low != all || got.Total.High != all || got.AtLeast != all {
			t.Errorf("%s: in all %+v, at least %d, in truth %d", test.name, got.Total, got.AtLeast, all)
		}
		var sum preview.ReplayPoint
		for _, p := range r.Points {
			sum.Requests, sum.Published, sum.Draft = sum.Requests+p.Requests, sum.Published+p.Published, sum.Draft+p.Draft
		}
		if sum.Requests != r.Requests || sum.Published != r.Published || sum.Draft != r.Draft {
			t.Errorf("%s: points add up to %+v, not %+v", test.name, sum, r)
		}
	}
}

// A tenant with more requests than the trace has room for has a sample of its keys, each with all of
// its requests. What they would be denied is the least of the total.
func TestASampleOfTheKeysIsReplayed(t *testing.T) {
	t.Parallel()
	var requests []request
	for i := range 6000 {
		requests = append(requests, request{at: noon.Add(time.Duration(i) * 20 * time.Millisecond), check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprintf("u%d", i%300)}},
		}})
	}
	published, draft := document(onePolicy("users", "15/1m fixed_window", byUser)), document(onePolicy("users", "2/20s fixed_window", byUser))
	w, who := traced(t, published, requests)
	got := w.look(t, draft)
	p := got.Policies[0]
	if p.Replay == nil || p.Replay.All || p.Replay.Keys < 5 || p.Replay.Keys > 200 || p.Replay.Requests != 20*p.Replay.Keys {
		t.Fatalf("%+v", p.Replay)
	}
	secret := metrics.NewTraceKey(who[0].ID, "users")
	// The sample of a level has the keys whose hash begins with that many bits 0.
	for level := 1; ; level++ {
		var sampled []request
		for _, r := range requests {
			var key enforcement.Partition
			key.Add(r.check.Attributes[0].Value)
			if sum := key.Sum(); bits.LeadingZeros64(secret.Hash(&sum)) >= level {
				sampled = append(sampled, r)
			}
		}
		if int64(len(sampled)) > p.Replay.Requests {
			continue
		}
		want := truth(t, draft, who, sampled)["users"][who[0].Number]
		if int64(len(sampled)) != p.Replay.Requests || want.Limited() != p.Replay.Draft || p.Replay.Draft == 0 || p.Replay.Published != 0 {
			t.Errorf("level %d: %d requests, %d denied in truth: %+v", level, len(sampled), want.Limited(), p.Replay)
		}
		break
	}
	if got.Total != nil || got.AtLeast > 0 && got.AtLeast < p.Replay.Draft {
		t.Errorf("in all %+v, at least %d", got.Total, got.AtLeast)
	}
	if text := p.Replay.String(); !strings.HasPrefix(text, fmt.Sprintf("Of %d sampled keys, all their ", p.Replay.Keys)) {
		t.Errorf("%q", text)
	}
}

// Keys with an override are left out of the replay, and no other key.
func TestAReplayLeavesOverriddenKeysOut(t *testing.T) {
	t.Parallel()
	published := document(onePolicy("users", "10/1m fixed_window", byUser))
	w := newWorld(t, replaying)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	requests := asks(600, 3, "/a/x")
	n := exceptions.NewOverride{Policy: "users", Attribute: "user", Value: "u0", Factor: 2000, Reason: "more"}
	o, err := w.exceptions.CreateOverride(t.Context(), "acme", n)
	if err != nil {
		t.Fatal(err)
	}
	w.excepted = append(w.excepted, &enforcement.Override{ID: o.ID, Policy: "users", Attribute: "user", Value: "u0", Factor: 2000, Revision: 9, Until: noon.Add(time.Hour).UnixMicro()})
	w.decide(t, w.store, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	q := w.look(t, document(onePolicy("users", "5/1m fixed_window", byUser))).Policies[0].Replay
	if q == nil || q.Keys != 2 || q.Requests != 400 || q.LeftOut != 1 || q.Published != 200 || q.Draft != 300 {
		t.Errorf("%+v", q)
	}
	if text := q.String(); !strings.Contains(text, "1 key is left out, because of an override") {
		t.Errorf("%q", text)
	}
}

// A tenant that opted out has no replay, and one whose trace is lost for a time has a replay of the
// rest.
func TestWithoutATrace(t *testing.T) {
	t.Parallel()
	published, draft := document(onePolicy("users", "10/1m fixed_window", byUser)), document(onePolicy("users", "5/1m fixed_window", byUser))
	w := newWorld(t, replaying)
	w.publish(t, "p", published)
	made, err := w.tenants.CreateTenant(t.Context(), "acme", tenants.Document{Name: "acme", Plan: "p", NoTrace: true})
	if err != nil || !made.NoTrace {
		t.Fatal(made, err)
	}
	w.decide(t, w.store, published, []tenants.Tenant{made}, 1, asks(600, 3, "/a/x"))
	w.set(noon.Add(2 * time.Hour))
	if got := w.look(t, draft); got.Replay != nil || got.Policies[0].Replay != nil || got.Policies[0].Draft == nil {
		t.Errorf("without traces: %+v", got.Replay)
	}

	w = newWorld(t, replaying)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	requests := asks(1200, 3, "/a/x")
	w.decide(t, loses{w.store, noon.Add(5 * time.Minute).Unix()}, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	got := w.look(t, draft)
	// The trace begins in minute 6. Two minutes later, the counters of the replay are as the true ones were.
	if r := got.Replay; r == nil || !r.From.Equal(noon.Add(6*time.Minute)) || r.Requests != 12*60 || got.Policies[0].Replay.Draft != 12*45 {
		t.Errorf("%+v, %+v", r, got.Policies[0].Replay)
	}
	if f := got.Policies[0].Draft; f.Low > f.High || f.Low < 12*45-45 {
		t.Errorf("%+v", f)
	}
}

// loses is a store that loses the trace of one minute.
type loses struct {
	metrics.Store
	at int64
}

func (l loses) AddCounts(ctx context.Context, b metrics.Batch) error {
	b.Sketches = slices.DeleteFunc(slices.Clone(b.Sketches), func(r metrics.SketchRow) bool { return r.Name == metrics.SketchTrace && r.At == l.at })
	return l.Store.AddCounts(ctx, b)
}

// If a new policy leaves the bounds open, the estimate is what the replay says, and not what counts by
// minute suggest.
func TestTheEstimateIsThatOfTheReplay(t *testing.T) {
	t.Parallel()
	var requests []request
	for i := range 200 { // 20 requests in the first second of each minute
		at := noon.Add(time.Duration(i/20)*time.Minute + time.Duration(i%20)*10*time.Millisecond)
		requests = append(requests, request{at: at, check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: "u"}},
		}})
	}
	published := document(onePolicy("users", "100/1m gcra 100", byUser))
	w, _ := traced(t, published, requests)
	draft := document(onePolicy("users", "60/1m gcra 2", byUser), onePolicy("new", "5/1m gcra", func(p *plans.Policy) { p.CountBy = []string{"ip"} }))
	p := w.look(t, draft).Policies[0]
	if p.Replay == nil || p.Replay.Draft != 180 || p.Draft.Refused != 180 || p.Draft.Low > 180 || p.Draft.High < 180 {
		t.Errorf("%+v, %+v", p.Draft, p.Replay)
	}
}
