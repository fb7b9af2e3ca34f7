package preview_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// byIP counts a policy by another attribute than byUser.
func byIP(p *plans.Policy) { p.CountBy = []string{"ip"} }

// A new policy with the match and count_by of a published one is replayed with the requests of that
// policy, beside it.
func TestANewPolicyWithTracedKeysIsReplayed(t *testing.T) {
	t.Parallel()
	requests := asks(600, 4, "/a/x")
	w, who := traced(t, document(onePolicy("users", "12/20s fixed_window", byUser)), requests)
	draft := document(onePolicy("users", "12/20s fixed_window", byUser), onePolicy("more", "2/20s fixed_window", byUser))
	got, want := w.look(t, draft), truth(t, draft, who, requests)
	all := int64(0)
	for _, p := range got.Policies {
		n := want[p.Slug][who[0].Number]
		all += n.Limited()
		if p.Replay == nil || p.Replay.Draft != n.Limited() || p.Draft == nil || p.Draft.Low != n.Limited() || p.Draft.High != n.Limited() {
			t.Errorf("%s: %+v, %+v, in truth %d", p.Slug, p.Replay, p.Draft, n.Limited())
		}
	}
	if r := got.Replay; r == nil || len(r.Without) > 0 || r.Draft != all || all == 0 || got.Total == nil || got.Total.Low != all || got.Total.High != all {
		t.Errorf("%+v, in all %+v, in truth %d", r, got.Total, all)
	}
}

// Where the trace does not have the requests or the keys of a policy of the draft, the preview names it
// and states no figure of the draft for it.
func TestAReplayNamesThePoliciesThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	published := document(onePolicy("users", "8/20s fixed_window", byUser))
	for _, test := range []struct {
		name    string
		draft   plans.Content
		without string
	}{
		{"count_by", document(onePolicy("users", "8/20s fixed_window", byIP)), "users"},
		{"a new match", document(onePolicy("users", "8/20s fixed_window", byUser), onePolicy("other", "2/20s fixed_window", func(p *plans.Policy) { p.Match.Path = "/a/x" })), "other"},
		{"places", document(onePolicy("users", "8/20s concurrency", byUser)), "users"},
		{"in shadow", document(onePolicy("users", "8/20s fixed_window", byUser), onePolicy("other", "2/20s fixed_window", inShadow)), ""},
	} {
		w, who := traced(t, published, asks(600, 4, "/a/x"))
		got := w.look(t, test.draft)
		if r := got.Replay; r == nil || strings.Join(r.Without, " ") != test.without || strings.Contains(r.String(), "Not in the replay: "+test.without) != (test.without != "") {
			t.Errorf("%s: %+v", test.name, r)
		}
		for _, p := range got.Policies {
			switch {
			case p.Slug == test.without && p.Replay != nil:
				t.Errorf("%s: %s is not replayed, but has %+v", test.name, p.Slug, p.Replay)
			case p.Slug == "users" && test.without == "other" && (p.Replay == nil || !slices.Equal(p.Replay.Without, []string{"other"}) || !strings.Contains(p.Replay.String(), "as if it did not have other")):
				t.Errorf("%s: %+v", test.name, p.Replay)
			case p.Slug == "users" && test.without == "other":
				want := truth(t, test.draft, who, asks(600, 4, "/a/x"))["users"][who[0].Number]
				if p.Draft != nil && (p.Draft.Low > want.Limited() || p.Draft.High < want.Limited()) {
					t.Errorf("%s: %+v, in truth %d", test.name, p.Draft, want.Limited())
				}
			}
		}
	}
}

// A policy without a request denies nothing, so it leaves no total open.
func TestAPolicyWithoutRequestsDeniesNothing(t *testing.T) {
	t.Parallel()
	search := onePolicy("search", "5/10s token_bucket", func(p *plans.Policy) { byUser(p); p.Match.Path = "/search" })
	w, _ := traced(t, document(onePolicy("users", "8/1m fixed_window", byUser), search), asks(600, 4, "/a/x"))
	got := w.look(t, document(onePolicy("users", "4/1m fixed_window", byUser), search))
	if got.Total == nil || got.Total.Low == 0 || got.Total.Low != got.Total.High {
		t.Errorf("in all %+v, at least %d", got.Total, got.AtLeast)
	}
	if p := got.Policies[1]; p.Certainty != preview.Exact || p.Draft == nil || p.Draft.High != 0 {
		t.Errorf("%s, %+v: %s", p.Certainty, p.Draft, p.Why)
	}
}

// What the replay proves of a part of the keys is the least of the total, even if the policy needs shadow.
func TestAReplayOfAPartIsTheLeastOfTheTotal(t *testing.T) {
	t.Parallel()
	published, draft := document(onePolicy("users", "6/10s fixed_window", byUser)), document(onePolicy("users", "1/10s fixed_window", byUser))
	w := newWorld(t, replaying)
	w.publish(t, "p", published)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	requests := slices.DeleteFunc(asks(1200, 3, "/a/x"), func(r request) bool { // after three idle minutes, all counters are as new
		return !r.at.Before(noon.Add(8*time.Minute)) && r.at.Before(noon.Add(11*time.Minute))
	})
	w.decide(t, loses{w.store, noon.Add(5 * time.Minute).Unix()}, published, who, 1, requests)
	w.set(noon.Add(2 * time.Hour))
	got := w.look(t, draft)
	p := got.Policies[0]
	if p.Certainty != preview.NeedsShadow || p.Replay == nil || p.Replay.Draft == 0 || got.Total != nil || got.AtLeast < p.Replay.Draft/2 || got.AtLeast > p.Replay.Draft {
		t.Errorf("%s, %+v, in all %+v, at least %d", p.Certainty, p.Replay, got.Total, got.AtLeast)
	}
	if r := got.Replay; r.Parts != 1 || !strings.Contains(r.String(), "only a part of this time") {
		t.Errorf("%+v", r)
	}
}
