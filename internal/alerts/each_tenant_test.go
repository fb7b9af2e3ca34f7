package alerts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/tenants"
)

// open returns the tenants of the open incidents, in alphabetical order.
func (s *site) open() (list []string) {
	s.Helper()
	incidents, err := s.service.Incidents(s.Context(), "", alerts.Filter{Open: true})
	s.must(err)
	for _, i := range incidents {
		list = append(list, i.Rule.Tenant)
	}
	slices.Sort(list)
	return list
}

// state returns the state of a rule.
func (s *site) state(id string) alerts.State {
	s.Helper()
	w, err := s.service.Rule(s.Context(), "", id)
	s.must(err)
	return w.State
}

// A rule that watches each tenant has one incident and one message for each tenant that reaches the threshold, and ends
// each on its own.
func TestEachTenant(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	r.verify(t, c.Secret)
	rule, err := s.service.CreateRule(t.Context(), "", alerts.Document{
		Name: "Anybody is limited", Metric: alerts.Denials, EachTenant: true, Window: time.Minute, Threshold: 10, Recovery: 5, Channels: []string{c.ID},
	})
	s.must(err)
	e := s.evaluator("a")
	denied := func(tenant int, n int64) {
		s.countOf(metrics.CountKey{Tenant: s.all[tenant].Number, Kind: metrics.KindTotal}, n, n)
	}
	denied(0, 9)
	s.evaluate(e)
	if list := s.open(); len(list) != 0 {
		t.Fatalf("open: %q", list)
	}
	denied(0, 1)
	denied(2, 40)
	s.evaluate(e)
	s.evaluate(e)
	if list := s.open(); !slices.Equal(list, []string{"acme", "initech"}) {
		t.Fatalf("open: %q", list)
	}
	state := s.state(rule.ID)
	if state.Phase != alerts.Firing || state.Firing() != 2 || state.Value != 40 || state.Detail != "Tenant initech" {
		t.Errorf("the summary is %+v", state)
	}
	s.pass(2 * time.Minute)
	denied(2, 40)
	s.evaluate(e)
	if list := s.open(); !slices.Equal(list, []string{"initech"}) {
		t.Errorf("open: %q", list)
	}
	s.all = s.all[:2] // initech is deleted
	s.evaluate(e)
	if list, state := s.open(), s.state(rule.ID); len(list) != 0 || state.Phase != alerts.OK || len(state.Tenants) != 0 {
		t.Errorf("open: %q; %+v", list, state)
	}
	s.send()
	_, got := r.received()
	kinds := map[string]int{}
	for _, message := range got {
		kind, _, _ := strings.Cut(message, " ")
		kinds[kind]++
	}
	if kinds["alert.began"] != 2 || kinds["alert.resolved"] != 2 || len(got) != 4 {
		t.Errorf("received %q", got)
	}
}

// A rule that begins or stops to watch each tenant ends the alerts that it had.
func TestEachTenantIsChanged(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := alerts.Document{Name: "a", Metric: alerts.Denials, Window: time.Hour, Threshold: 10}
	rule, err := s.service.CreateRule(t.Context(), "", d)
	s.must(err)
	e := s.evaluator("a")
	for _, key := range []metrics.CountKey{{Kind: metrics.KindTotal}, {Kind: metrics.KindTotal, Tenant: s.tenant.Number}} {
		s.countOf(key, 10, 10)
	}
	for i, each := range []bool{false, true, false, true} {
		d.EachTenant = each
		if i > 0 {
			rule, err = s.service.ChangeRule(t.Context(), "", rule.ID, rule.Version, d)
			s.must(err)
		}
		want := []string{""}
		if each {
			want = []string{"acme"}
		}
		s.evaluate(e)
		s.evaluate(e) // the first evaluation ends the alerts of the rule as it was
		if list := s.open(); !slices.Equal(list, want) {
			t.Errorf("change %d: open %q, want %q", i, list, want)
		}
	}
	d.Disabled = true
	_, err = s.service.ChangeRule(t.Context(), "", rule.ID, rule.Version, d)
	s.must(err)
	s.evaluate(e)
	if list := s.open(); len(list) != 0 {
		t.Errorf("disabled: open %q", list)
	}
}

// With more tenants than one evaluation measures, the evaluations measure them in turn. An alert stays open while its
// tenant is not measured.
func TestTurnsOfTenants(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const many = 450
	for n := range many {
		s.all = append(s.all, tenants.Tenant{Slug: fmt.Sprintf("t%04d", n), Number: uint32(1000 + n)})
	}
	_, err := s.service.CreateRule(t.Context(), "", alerts.Document{Name: "a", Metric: alerts.Denials, EachTenant: true, Window: time.Hour, Threshold: 1})
	s.must(err)
	for _, n := range []int{0, 199, 200, 449} {
		s.countOf(metrics.CountKey{Tenant: uint32(1000 + n), Kind: metrics.KindTotal}, 1, 1)
	}
	e := s.evaluator("a")
	for turn, want := range []int{1, 3, 4, 4, 4, 4} {
		s.evaluate(e)
		if list := s.open(); len(list) != want {
			t.Errorf("after turn %d: open %q", turn, list)
		}
	}
}

// A rule about denials counts the policy that it names: of one tenant, or of all.
func TestDenialsOfAPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for key, n := range map[metrics.CountKey]int64{
		{Kind: metrics.KindTotal}:                                               100,
		{Kind: metrics.KindPolicy, Name: "logins"}:                              7,
		{Kind: metrics.KindPolicy, Name: "logins", Tenant: s.tenant.Number}:     3,
		{Kind: metrics.KindPolicy, Name: "everything", Tenant: s.tenant.Number}: 50,
	} {
		s.countOf(key, n, n)
	}
	for tenant, want := range map[string]float64{"": 7, "acme": 3, "globex": 0} {
		rule, err := s.service.CreateRule(t.Context(), "", alerts.Document{
			Name: "a", Metric: alerts.Denials, Tenant: tenant, Policy: "logins", Window: time.Minute, Threshold: 1000,
		})
		s.must(err)
		s.evaluate(s.evaluator("a"))
		if state := s.state(rule.ID); state.Value != want || state.Err != "" {
			t.Errorf("of tenant %q: %v %s, want %v", tenant, state.Value, state.Err, want)
		}
	}
	for _, template := range alerts.Templates(true) {
		if template.Metric == alerts.Denials && !template.NeedsPolicy {
			t.Errorf("template %s counts all policies", template.Slug)
		}
	}
}
