package alerts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/problem"
)

// An alert that begins in a maintenance window is announced when the window ends, once. An
// alert of a rule outside of the window is announced at once.
func TestMaintenance(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	inside, outside := s.rule(c.ID), s.rule(c.ID)
	_, err := s.service.CreateMaintenance(t.Context(), "", alerts.MaintenanceDocument{
		Name: "upgrade", StartsAt: s.now(), EndsAt: s.now().Add(10 * time.Minute), Rules: []string{inside.ID},
	})
	s.must(err)
	// Windows of other owners do not count.
	_, err = s.service.CreateMaintenance(t.Context(), s.tenant.ID, alerts.MaintenanceDocument{Name: "all", StartsAt: s.now(), EndsAt: s.now().Add(time.Hour)})
	s.must(err)
	a := s.evaluator("a")
	// announced returns the rules of the announced alerts.
	announced := func() (list []string) {
		t.Helper()
		s.send()
		incidents, err := s.service.Incidents(t.Context(), "", alerts.Filter{})
		s.must(err)
		for _, i := range incidents {
			sent, err := s.service.Deliveries(t.Context(), "", alerts.Filter{Of: i.ID})
			s.must(err)
			for range sent {
				list = append(list, i.RuleID)
			}
		}
		return list
	}
	for range 12 { // two minutes
		s.count(100, 50)
		s.evaluate(a)
		s.pass(10 * time.Second)
	}
	open, err := s.service.Incidents(t.Context(), "", alerts.Filter{Open: true})
	s.must(err)
	if got := announced(); len(open) != 2 || len(got) != 1 || got[0] != outside.ID {
		t.Fatalf("%d open; in the window, announced: %q", len(open), got)
	}
	for range 60 { // ten minutes
		s.count(100, 50)
		s.evaluate(a)
		s.pass(10 * time.Second)
	}
	got := announced()
	if len(got) != 2 || got[0] == got[1] {
		t.Errorf("after the window, announced: %q", got)
	}
	if calls, _ := r.received(); calls != 2 {
		t.Errorf("%d messages", calls)
	}
}

// An alert that begins and ends while its rule is muted sends nothing. One that was announced
// before the mute has its end sent.
func TestMuteAndTheEnd(t *testing.T) {
	t.Parallel()
	s, r := newSite(t), newReceiver(t)
	c := s.channel(r.URL)
	rule := s.rule(c.ID)
	a := s.evaluator("a")
	run := func(minutes, denied int64) {
		t.Helper()
		for range 6 * minutes {
			s.count(100, denied)
			s.evaluate(a)
			s.send()
			s.pass(10 * time.Second)
		}
	}
	mute := func(until time.Time) {
		t.Helper()
		_, err := s.service.Mute(t.Context(), "", rule.ID, until)
		s.must(err)
	}
	mute(s.now().Add(time.Hour))
	run(3, 50)
	run(5, 0)
	if incidents, err := s.service.Incidents(t.Context(), "", alerts.Filter{}); err != nil || len(incidents) != 1 || incidents[0].EndedAt.IsZero() {
		t.Fatalf("%+v %v", incidents, err)
	}
	if calls, _ := r.received(); calls != 0 {
		t.Fatalf("a muted alert sent %d messages", calls)
	}
	mute(time.Time{})
	run(3, 50)
	mute(s.now().Add(time.Hour))
	run(5, 0)
	list := s.deliveries(alerts.Delivered)
	if len(list) != 2 || list[0].Event != alerts.EventResolved || list[1].Event != alerts.EventBegan {
		t.Errorf("%+v", list)
	}
}

func TestMaintenanceCovers(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC) // a Sunday
	for _, c := range []struct {
		repeat alerts.Repeat
		after  time.Duration
		want   bool
	}{
		{alerts.Once, -time.Second, false},
		{alerts.Once, 0, true},
		{alerts.Once, time.Hour - 1, true},
		{alerts.Once, time.Hour, false},
		{alerts.Once, 24 * time.Hour, false},
		{alerts.Daily, 24 * time.Hour, true},
		{alerts.Daily, 26 * time.Hour, false},
		{alerts.Weekly, 24 * time.Hour, false},
		{alerts.Weekly, 21 * 24 * time.Hour, true},
		{alerts.Weekly, -7 * 24 * time.Hour, false},
	} {
		d := alerts.MaintenanceDocument{StartsAt: start, EndsAt: start.Add(time.Hour), Repeat: c.repeat}
		if got := d.Covers(start.Add(c.after)); got != c.want {
			t.Errorf("%q after %s: %v", c.repeat, c.after, got)
		}
	}
}

func TestWrongMaintenance(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := s.now()
	for pointer, d := range map[string]alerts.MaintenanceDocument{
		"/name":      {StartsAt: now, EndsAt: now.Add(time.Hour)},
		"/starts_at": {Name: "a", EndsAt: now.Add(time.Hour)},
		"/ends_at":   {Name: "a", StartsAt: now, EndsAt: now},
		"/repeat":    {Name: "a", StartsAt: now, EndsAt: now.Add(time.Hour), Repeat: "yearly"},
		"/rules/0":   {Name: "a", StartsAt: now, EndsAt: now.Add(time.Hour), Rules: []string{"x"}},
	} {
		_, err := s.service.CreateMaintenance(t.Context(), "", d)
		if problem.Of(err) != problem.Invalid || !strings.Contains(err.Error(), pointer) {
			t.Errorf("%s: %v", pointer, err)
		}
	}
	for _, d := range []alerts.MaintenanceDocument{
		{Name: "over", StartsAt: now.Add(-2 * time.Hour), EndsAt: now.Add(-time.Hour)},
		{Name: "long", StartsAt: now, EndsAt: now.Add(31 * 24 * time.Hour)},
		{Name: "longer than a day", StartsAt: now, EndsAt: now.Add(25 * time.Hour), Repeat: alerts.Daily},
	} {
		if _, err := s.service.CreateMaintenance(t.Context(), "", d); problem.Of(err) != problem.Invalid {
			t.Errorf("%s: %v", d.Name, err)
		}
	}
}
