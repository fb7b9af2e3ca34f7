package preview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// twoVersions plays ten minutes of requests with the first document, publishes the second, and plays
// ten more minutes.
func twoVersions(t *testing.T, change func(*preview.Config), first, second plans.Content, requests []request) (*world, []tenants.Tenant) {
	t.Helper()
	w := newWorld(t, change)
	w.publish(t, "p", first)
	who := []tenants.Tenant{w.tenant(t, "acme", "p", tenants.Allow)}
	half := noon.Add(10 * time.Minute)
	var before, after []request
	for _, r := range requests {
		if r.at.Before(half) {
			before = append(before, r)
		} else {
			after = append(after, r)
		}
	}
	w.decide(t, w.store, first, who, 1, before)
	w.set(half)
	w.publish(t, "p", second)
	w.decide(t, w.store, second, who, 1, after)
	w.set(noon.Add(2 * time.Hour))
	return w, who
}

// Issue 13, 1.3: a publication does not cut the history of policies with the same match.
func TestHistoryOfEarlierVersions(t *testing.T) {
	t.Parallel()
	requests := asks(1200, 3, "/a/x")
	first := document(onePolicy("users", "15/1m fixed_window clock", byUser), onePolicy("other", "5/1m gcra", func(p *plans.Policy) { p.Match.Path = "/o" }))
	second := document(onePolicy("users", "12/1m fixed_window clock", byUser), first.Policies[1])
	draft := document(onePolicy("users", "6/1m fixed_window clock", byUser), first.Policies[1])
	w, who := twoVersions(t, nil, first, second, requests)
	got := w.look(t, draft)
	users := got.Policies[0]
	want := truth(t, draft, who, requests)["users"][who[0].Number]
	if n := want.Limited(); users.Draft.Refused != n || users.Draft.Low != n || users.Draft.High != n || n < 800 {
		t.Errorf("%+v, in truth %d", users.Draft, n)
	}
	if got.Clipped != "" || users.Requests != 1200 || users.Published.Refused != 10*(60-3*15)+10*(60-3*12) || !users.From.Equal(got.From) {
		t.Errorf("clipped %q, %d requests, denied %d, from %v", got.Clipped, users.Requests, users.Published.Refused, users.From)
	}
	if notes := strings.Join(users.Notes, " "); !strings.Contains(notes, "Version 2 came into force at 20 November 12:10 UTC") {
		t.Errorf("notes %q", users.Notes)
	}
	if other := got.Policies[1]; len(other.Notes) != 0 || other.Certainty != preview.Exact {
		t.Errorf("a policy that no version changed: %+v", other)
	}
	// The draft is as published: the figure of the whole range is a replay, because version 1 had other numbers.
	same := w.look(t, second).Policies[0]
	want = truth(t, second, who, requests)["users"][who[0].Number]
	if n := want.Limited(); same.Certainty != preview.Estimated || same.Draft.Refused != n || same.Draft.Low != n || same.Draft.High != n {
		t.Errorf("as published: %s, %+v, in truth %d", same.Certainty, same.Draft, n)
	}
}

// A policy that the earlier version did not have begins later than the others, and the total is at
// least what is known.
func TestHistoryThatIsCut(t *testing.T) {
	t.Parallel()
	requests := asks(1200, 3, "/a/x")
	users := onePolicy("users", "15/1m fixed_window clock", byUser)
	second := document(users, onePolicy("all", "40/1m fixed_window clock", nil))
	w, _ := twoVersions(t, nil, document(users), second, requests)
	draft := document(users, onePolicy("all", "30/1m fixed_window clock", nil))
	got := w.look(t, draft)
	all := got.Policies[1]
	if since := noon.Add(11 * time.Minute); !all.From.Equal(since) || all.Requests != 540 || all.Draft.Refused != 9*30 {
		t.Errorf("from %v, %d requests, %+v", all.From, all.Requests, all.Draft)
	}
	if !strings.Contains(strings.Join(all.Notes, " "), "begin at 20 November 12:11 UTC, when version 2") {
		t.Errorf("notes %q", all.Notes)
	}
	if users := got.Policies[0]; !users.From.Equal(got.From) || users.Requests != 1200 {
		t.Errorf("the older policy: from %v, %d requests", users.From, users.Requests)
	}
	if got.Total != nil || got.AtLeast < 9*30 || got.Clipped != "" {
		t.Errorf("in all %+v, at least %d, clipped %q", got.Total, got.AtLeast, got.Clipped)
	}
}

// Issue 13, 1.3: an override of one idle key does not widen the bounds of all keys, even if most
// keys are in no ranking.
func TestOverrideOfAnIdleKey(t *testing.T) {
	t.Parallel()
	var requests []request
	for i := range 2400 { // 400 users, three times in each of two minutes
		requests = append(requests, request{at: noon.Add(time.Duration(i) * 50 * time.Millisecond), check: enforcement.Check{
			Method: "GET", Path: "/a/x", Cost: 1, Attributes: []enforcement.Attribute{{Name: "user", Value: fmt.Sprintf("u%d", i%400)}},
		}})
	}
	w := played(t, document(onePolicy("users", "500/1m fixed_window clock", byUser)), requests)
	draft := document(onePolicy("users", "400/1m fixed_window clock", byUser))
	before := w.look(t, draft).Policies[0].Draft
	for _, n := range []exceptions.NewOverride{
		{Policy: "users", Attribute: "user", Value: "idle", Factor: 2000, Reason: "more"},
		{Policy: "users", Attribute: "user", Prefix: "vip-", Factor: 2000, Reason: "more"},
	} {
		if _, err := w.exceptions.CreateOverride(t.Context(), "acme", n); err != nil {
			t.Fatal(err)
		}
		if f := w.look(t, draft).Policies[0].Draft; f.Refused != before.Refused || f.Low != before.Low || f.High != before.High {
			t.Errorf("with an override of %q: %+v, before %+v", n.Value+n.Prefix, f, before)
		}
	}
	// A new key that may be over its own small quota stays unknown, but not the others.
	n := exceptions.NewOverride{Policy: "users", Attribute: "user", Value: "u399", Limits: []enforcement.OverrideLimit{
		{Name: "l1", Quota: 1, Burst: enforcement.Keep},
	}, Reason: "less"}
	if _, err := w.exceptions.CreateOverride(t.Context(), "acme", n); err != nil {
		t.Fatal(err)
	}
	if f := w.look(t, draft).Policies[0].Draft; f.High < before.High+4 || f.High > before.High+100 {
		t.Errorf("with an override of a key that may be in no ranking: %+v, before %+v", f, before)
	}
}

// Issue 13, 1.3: an override of a network applies to keys that are counted by ip/64.
func TestOverrideOfANetwork(t *testing.T) {
	t.Parallel()
	requests := asks(300, 1, "/a/x")
	for i := range requests {
		requests[i].check.Attributes = nil
		if err := requests[i].check.AddAttribute("ip", fmt.Sprintf("2001:db8:0:%x::1", i%3)); err != nil {
			t.Fatal(err)
		}
	}
	byNetwork := func(p *plans.Policy) { p.CountBy = []string{"ip/64"} }
	w := played(t, document(onePolicy("nets", "30/1m fixed_window clock", byNetwork)), requests)
	draft := document(onePolicy("nets", "10/1m fixed_window clock", byNetwork))
	before := w.look(t, draft).Policies[0].Draft
	n := exceptions.NewOverride{Policy: "nets", Attribute: "ip", Prefix: "2001:db8::/64", Factor: 5000, Reason: "more"}
	if _, err := w.exceptions.CreateOverride(t.Context(), "acme", n); err != nil {
		t.Fatal(err)
	}
	if f := w.look(t, draft).Policies[0].Draft; before.Refused != 3*50 || f.Low != 2*50 || f.High != 2*50+100 {
		t.Errorf("with an override of a network: %+v, before %+v", f, before)
	}
}

// A publication that changes a number of one policy does not cut the history of another one, even if counts
// by minute do not contain the answer: the trace has it.
func TestThePublicationOfOtherNumbersKeepsShortWindows(t *testing.T) {
	t.Parallel()
	requests := asks(1200, 3, "/a/x")
	users := onePolicy("users", "2/10s fixed_window clock", byUser)
	first, second := document(users, onePolicy("all", "7/10s fixed_window clock", nil)), document(users, onePolicy("all", "5/10s fixed_window clock", nil))
	w, who := twoVersions(t, replaying, first, second, requests)
	got, want := w.look(t, second), truth(t, second, who, requests)
	if !got.From.Equal(noon.Add(-22*time.Hour)) || got.Clipped != "" {
		t.Errorf("from %v: %q", got.From, got.Clipped)
	}
	for _, p := range got.Policies {
		n := want[p.Slug][who[0].Number]
		if !p.From.Equal(got.From) || p.Requests != 1200 || p.Draft == nil || p.Draft.Low != n.Limited() || p.Draft.High != n.Limited() {
			t.Errorf("%s: from %v, %d requests, %s %+v, in truth %d: %s", p.Slug, p.From, p.Requests, p.Certainty, p.Draft, n.Limited(), p.Why)
		}
	}
	if got.Total == nil || got.Total.Low != got.Total.High {
		t.Errorf("in all %+v, at least %d", got.Total, got.AtLeast)
	}
}
