package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

var alertTests = []struct {
	name string
	run  func(*suite)
}{
	{"alert rules are made, read, changed and deleted", testAlertRules},
	{"alert channels are made, read, changed and deleted", testAlertChannels},
	{"alerts of one owner are nothing to another", testAlertOwners},
	{"a state advances once, with its incident and its messages", testAlertAdvance},
	{"a message is claimed once until its claim ends", testAlertClaims},
	{"old alerts are removed", testAlertPrune},
	{"maintenance windows are made, read, deleted and removed", testMaintenance},
}

// rule makes a rule of an owner.
func (s *suite) rule(tenantID string, channels ...string) alerts.Rule {
	s.Helper()
	at := s.Clock.stored()
	r, err := s.Store.CreateRule(s.ctx, alerts.Rule{
		ID: audit.NewID(), TenantID: tenantID, CreatedAt: at, UpdatedAt: at,
		Document: alerts.Document{
			Name: "many 429s", Metric: alerts.DenialRate, Window: 5 * time.Minute, Threshold: 20, Recovery: 10, For: time.Minute,
			Channels: channels, MutedUntil: at.Add(time.Hour).Truncate(time.Second),
		},
	}, entry("alert_rule.create"))
	s.must(err)
	return r
}

// channel makes a channel of an owner.
// maintenance makes a window of an owner.
func (s *suite) maintenance(tenantID string) alerts.Maintenance {
	s.Helper()
	at := s.Clock.stored().Truncate(time.Millisecond)
	m, err := s.Store.CreateMaintenance(s.ctx, alerts.Maintenance{
		ID: audit.NewID(), TenantID: tenantID, CreatedAt: at,
		MaintenanceDocument: alerts.MaintenanceDocument{Name: "upgrade", StartsAt: at, EndsAt: at.Add(time.Hour)},
	}, entry("alert_maintenance.create"))
	s.must(err)
	return m
}

func testMaintenance(s *suite) {
	acme := s.tenant("acme", "")
	own := s.maintenance(acme.ID)
	once := s.maintenance("")
	weekly := once
	weekly.ID, weekly.Repeat, weekly.Rules = audit.NewID(), alerts.Weekly, []string{audit.NewID()}
	_, err := s.Store.CreateMaintenance(s.ctx, weekly, entry("alert_maintenance.create"))
	s.must(err)
	list, err := s.Other.Maintenances(s.ctx, "", alerts.Filter{})
	s.must(err)
	s.same("windows of the operator, newest first", list, []alerts.Maintenance{weekly, once})
	got, err := s.Store.Maintenance(s.ctx, acme.ID, own.ID)
	s.must(err)
	s.same("one window", got, own)
	for _, other := range []string{"", acme.ID} {
		_, err := s.Store.Maintenance(s.ctx, other, map[string]string{"": own.ID, acme.ID: once.ID}[other])
		s.wantKind(err, problem.NotFound, "")
		s.wantKind(s.Store.DeleteMaintenance(s.ctx, other, map[string]string{"": own.ID, acme.ID: once.ID}[other], entry("x")),
			problem.NotFound, "")
	}
	s.Clock.Add(3 * time.Hour)
	s.must(s.Store.PruneAlerts(s.ctx, s.Clock.Now().Add(-time.Hour)))
	all, err := s.Store.AllMaintenances(s.ctx)
	s.must(err)
	s.same("what is left: a repeated window has no end", all, []alerts.Maintenance{weekly})
	s.must(s.Store.DeleteMaintenance(s.ctx, "", weekly.ID, entry("alert_maintenance.delete")))
	for range alerts.MaxMaintenance {
		s.maintenance("")
	}
	_, err = s.Store.CreateMaintenance(s.ctx, alerts.Maintenance{ID: audit.NewID()}, entry("alert_maintenance.create"))
	s.wantKind(err, problem.Conflict, "too_many_maintenance_windows")
}

func (s *suite) channel(tenantID string) alerts.Channel {
	s.Helper()
	at := s.Clock.stored()
	c, err := s.Store.CreateChannel(s.ctx, alerts.Channel{
		ID: audit.NewID(), TenantID: tenantID, Secret: "whsec_c2VjcmV0", CreatedAt: at, UpdatedAt: at,
		ChannelDocument: alerts.ChannelDocument{Name: "on call", Kind: alerts.Webhook, URL: "https://example.com/hook"},
	}, entry("alert_channel.create"))
	s.must(err)
	return c
}

func testAlertRules(s *suite) {
	made := s.rule("")
	s.same("version", made.Version, int64(1))
	got, err := s.Other.Rule(s.ctx, "", made.ID)
	s.must(err)
	s.same("found", got, alerts.Watched{Rule: made, Seq: 1})

	s.Clock.Add(time.Minute)
	changed := made
	changed.Name, changed.Disabled, changed.MutedUntil, changed.UpdatedAt = "other", true, time.Time{}, s.Clock.stored()
	after, err := s.Store.ChangeRule(s.ctx, changed, 1, entry("alert_rule.change"))
	s.must(err)
	changed.Version = 2
	s.same("changed", after, changed)
	_, err = s.Store.ChangeRule(s.ctx, changed, 1, entry("alert_rule.change"))
	s.wantKind(err, problem.Stale, "")
	got, err = s.Store.Rule(s.ctx, "", made.ID)
	s.must(err)
	s.same("found after the change", got, alerts.Watched{Rule: changed, Seq: 2})

	second := s.rule("")
	list, err := s.Store.Rules(s.ctx, "", alerts.Filter{Limit: 1})
	s.must(err)
	s.same("a page", len(list), 1)
	s.same("newest first", list[0].ID, second.ID)
	list, err = s.Store.Rules(s.ctx, "", alerts.Filter{After: second.ID})
	s.must(err)
	s.same("the next page", []string{list[0].ID}, []string{made.ID})

	s.must(s.Store.DeleteRule(s.ctx, "", made.ID, entry("alert_rule.delete")))
	s.wantKind(s.Store.DeleteRule(s.ctx, "", made.ID, entry("alert_rule.delete")), problem.NotFound, "")
	for n := 1; n < alerts.MaxRules; n++ {
		s.rule("")
	}
	_, err = s.Store.CreateRule(s.ctx, alerts.Rule{ID: audit.NewID()}, entry("alert_rule.create"))
	s.wantKind(err, problem.Conflict, "too_many_rules")
}

func testAlertChannels(s *suite) {
	made := s.channel("")
	got, err := s.Other.Channel(s.ctx, "", made.ID)
	s.must(err)
	s.same("found", got, made)
	changed := made
	changed.URL, changed.Secret = "https://example.org/", "whsec_bmV3"
	changed.Former, changed.FormerUntil = made.Secret, s.Clock.stored().Add(time.Hour)
	changed, err = s.Store.ChangeChannel(s.ctx, changed, 1, entry("alert_channel.change"))
	s.must(err)
	_, err = s.Store.ChangeChannel(s.ctx, changed, 1, entry("alert_channel.change"))
	s.wantKind(err, problem.Stale, "")
	got, err = s.Store.Channel(s.ctx, "", made.ID)
	s.must(err)
	s.same("found after the change", got, changed)

	d := s.queued(made.ID)
	s.must(s.Store.DeleteChannel(s.ctx, "", made.ID, entry("alert_channel.delete")))
	s.wantKind(s.Store.DeleteChannel(s.ctx, "", made.ID, entry("alert_channel.delete")), problem.NotFound, "")
	_, err = s.Store.RepeatDelivery(s.ctx, "", d.ID, s.Clock.Now(), entry("alert_delivery.repeat"))
	s.wantKind(err, problem.NotFound, "")
	for range alerts.MaxChannels {
		s.channel("")
	}
	_, err = s.Store.CreateChannel(s.ctx, alerts.Channel{ID: audit.NewID()}, entry("alert_channel.create"))
	s.wantKind(err, problem.Conflict, "too_many_channels")
}

// queued adds a test message that is due now.
func (s *suite) queued(channel string) alerts.Delivery {
	s.Helper()
	d := alerts.Delivery{
		ID: audit.NewID(), ChannelID: channel, Event: alerts.EventTest, Body: []byte(`{"type":"alert.test"}`),
		CreatedAt: s.Clock.stored(), DueAt: s.Clock.stored(), Status: alerts.Waiting,
	}
	s.must(s.Store.QueueDelivery(s.ctx, d, entry("alert_channel.test")))
	return d
}

func testAlertOwners(s *suite) {
	acme, beta := s.tenant("acme", ""), s.tenant("beta", "")
	r, c := s.rule(acme.ID), s.channel(acme.ID)
	s.rule("")
	for _, other := range []string{"", beta.ID} {
		_, err := s.Store.Rule(s.ctx, other, r.ID)
		s.wantKind(err, problem.NotFound, "")
		_, err = s.Store.Channel(s.ctx, other, c.ID)
		s.wantKind(err, problem.NotFound, "")
		stolen := r
		stolen.TenantID = other
		_, err = s.Store.ChangeRule(s.ctx, stolen, 1, entry("alert_rule.change"))
		s.wantKind(err, problem.NotFound, "")
		s.wantKind(s.Store.DeleteRule(s.ctx, other, r.ID, entry("alert_rule.delete")), problem.NotFound, "")
		s.wantKind(s.Store.DeleteChannel(s.ctx, other, c.ID, entry("alert_channel.delete")), problem.NotFound, "")
		list, err := s.Store.Rules(s.ctx, other, alerts.Filter{})
		s.must(err)
		s.same("nothing of acme", slices.ContainsFunc(list, func(w alerts.Watched) bool { return w.ID == r.ID }), false)
	}
	all, err := s.Store.Watched(s.ctx)
	s.must(err)
	s.same("rules of all owners", len(all), 2)
	s.must(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision, entry("tenant.delete")))
	all, err = s.Store.Watched(s.ctx)
	s.must(err)
	s.same("rules without those of a deleted tenant", len(all), 1)
}

func testAlertAdvance(s *suite) {
	c := s.channel("")
	r := s.rule("", c.ID)
	at := s.Clock.stored()
	incident := alerts.Incident{ID: audit.NewID(), RuleID: r.ID, Rule: r.Document, BeganAt: at, Value: 25, Peak: 30, Detail: "detail"}
	message := func(event alerts.Event) alerts.Delivery {
		return alerts.Delivery{
			ID: audit.NewID(), ChannelID: c.ID, IncidentID: incident.ID, Event: event, Body: []byte(`{}`),
			CreatedAt: at, DueAt: at, Status: alerts.Waiting,
		}
	}
	firing := alerts.State{Phase: alerts.Firing, Since: at.Truncate(time.Millisecond), Value: 25, Peak: 30, Incident: incident.ID}
	// If several nodes advance the same state, only one of them succeeds.
	var group sync.WaitGroup
	var mu sync.Mutex
	var won []string // incidents of the nodes whose Advance succeeded
	for n := range 6 {
		store := s.Store
		if n%2 == 1 {
			store = s.Other
		}
		began, state, d := incident, firing, message(alerts.EventBegan)
		began.ID = audit.NewID()
		state.Incident, d.IncidentID = began.ID, began.ID
		group.Go(func() {
			mine, err := store.Advance(s.ctx, alerts.Advance{
				RuleID: r.ID, Seq: 1, State: state, Began: []alerts.Incident{began}, Deliveries: []alerts.Delivery{d},
			})
			if err != nil {
				s.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if mine {
				won = append(won, began.ID)
			}
		})
	}
	group.Wait()
	if len(won) != 1 {
		s.Fatalf("%d nodes advanced the state, want 1", len(won))
	}
	incident.ID, firing.Incident = won[0], won[0]
	open, err := s.Store.Incidents(s.ctx, "", alerts.Filter{Open: true})
	s.must(err)
	s.same("one incident", open, []alerts.Incident{incident})
	sent, err := s.Store.Deliveries(s.ctx, "", alerts.Filter{})
	s.must(err)
	s.same("one message", len(sent), 1)
	w, err := s.Other.Rule(s.ctx, "", r.ID)
	s.must(err)
	s.same("the state", w.State, firing)

	// A message to a channel that was deleted in the meantime is not queued.
	gone := message(alerts.EventResolved)
	gone.ChannelID = audit.NewID()
	incident.EndedAt, incident.Peak = at.Add(time.Minute), 40
	mine, err := s.Store.Advance(s.ctx, alerts.Advance{
		RuleID: r.ID, Seq: w.Seq, State: alerts.State{Phase: alerts.OK}, Ended: []alerts.Incident{incident},
		Deliveries: []alerts.Delivery{gone, message(alerts.EventResolved)},
	})
	s.must(err)
	s.same("advanced again", mine, true)
	ended, err := s.Store.Incidents(s.ctx, "", alerts.Filter{})
	s.must(err)
	s.same("the ended incident", ended, []alerts.Incident{incident})
	s.incidentsByTime(at)
	one, err := s.Store.Incident(s.ctx, "", incident.ID)
	s.must(err)
	s.same("one incident", one, incident)
	for of, want := range map[string]int{r.ID: 1, audit.NewID(): 0} {
		list, err := s.Store.Incidents(s.ctx, "", alerts.Filter{Of: of})
		s.must(err)
		s.same("incidents of a rule", len(list), want)
	}
	sent, err = s.Store.Deliveries(s.ctx, "", alerts.Filter{Of: incident.ID})
	s.must(err)
	s.same("messages of the incident", len(sent), 2)
	sent, err = s.Store.Deliveries(s.ctx, "", alerts.Filter{Status: alerts.Waiting})
	s.must(err)
	s.same("two messages", len(sent), 2)
}

// incidentsByTime selects the only incident, which began at the time at, by its time.
func (s *suite) incidentsByTime(at time.Time) {
	for _, span := range []struct {
		from, to time.Time
		want     int
	}{{at, at.Add(time.Second), 1}, {at.Add(time.Second), time.Time{}, 0}, {time.Time{}, at, 0}, {at.Add(-time.Hour), time.Time{}, 1}} {
		list, err := s.Store.Incidents(s.ctx, "", alerts.Filter{From: span.from, To: span.to})
		s.must(err)
		s.same(fmt.Sprintf("incidents from %s to %s", span.from, span.to), len(list), span.want)
	}
}

func testAlertClaims(s *suite) {
	c := s.channel("")
	first := s.queued(c.ID)
	s.Clock.Add(time.Second)
	second := s.queued(c.ID)
	now := s.Clock.Now()
	// Two nodes claim at once.
	var lists [2][]alerts.Due
	var group sync.WaitGroup
	for n, store := range []Store{s.Store, s.Other} {
		group.Go(func() {
			var err error
			if lists[n], err = store.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 10); err != nil {
				s.Error(err)
			}
		})
	}
	group.Wait()
	claimed := slices.Concat(lists[0], lists[1])
	slices.SortFunc(claimed, func(a, b alerts.Due) int { return a.CreatedAt.Compare(b.CreatedAt) })
	if len(claimed) != 2 || claimed[0].ID != first.ID || claimed[1].ID != second.ID {
		s.Fatalf("claimed %+v", claimed)
	}
	s.same("the channel", claimed[0].Channel, c)
	s.same("attempts", claimed[0].Attempts, 1)
	none, err := s.Store.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 10)
	s.must(err)
	s.same("claimed again", none, []alerts.Due(nil))

	// The claim of a node that has stopped ends. If the node stores a result later, nothing
	// changes.
	s.Clock.Add(time.Minute)
	now = s.Clock.Now()
	again, err := s.Other.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 1)
	s.must(err)
	s.same("attempts of the second claim", again[0].Attempts, 2)
	late := claimed[0].Delivery
	late.Status, late.EndAt, late.DueAt = alerts.Delivered, s.Clock.stored(), time.Time{}
	s.must(s.Store.EndAttempt(s.ctx, late, now))
	done := again[0].Delivery
	done.Status, done.Answer, done.EndAt, done.DueAt = alerts.Dead, "410 Gone", s.Clock.stored(), time.Time{}
	s.must(s.Other.EndAttempt(s.ctx, done, s.Clock.stored()))
	list, err := s.Store.Deliveries(s.ctx, "", alerts.Filter{Status: alerts.Dead})
	s.must(err)
	s.same("dead", list, []alerts.Delivery{done})

	read, attempts, err := s.Store.Delivery(s.ctx, "", done.ID)
	s.must(err)
	s.same("one delivery", read, done)
	s.same("its attempts, without the late one", attempts, []alerts.Attempt{{At: s.Clock.stored(), Answer: "410 Gone"}})
	for of, want := range map[string]int{c.ID: 2, audit.NewID(): 0} {
		list, err := s.Store.Deliveries(s.ctx, "", alerts.Filter{Of: of})
		s.must(err)
		s.same("deliveries of a channel", len(list), want)
	}

	_, err = s.Store.RepeatDelivery(s.ctx, "", done.ID, now, entry("alert_delivery.repeat"))
	s.must(err)
	repeated, err := s.Store.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 10)
	s.must(err)
	if !slices.ContainsFunc(repeated, func(d alerts.Due) bool { return d.ID == done.ID && d.Attempts == 1 }) {
		s.Errorf("the repeated message was not claimed: %+v", repeated)
	}
}

func testAlertPrune(s *suite) {
	c := s.channel("")
	r := s.rule("")
	for n := range 3 {
		s.queued(c.ID)
		incident := alerts.Incident{ID: audit.NewID(), RuleID: r.ID, Rule: alerts.Document{Name: fmt.Sprint(n)}, BeganAt: s.Clock.stored()}
		_, err := s.Store.Advance(s.ctx, alerts.Advance{RuleID: r.ID, Seq: int64(2*n + 1), Began: []alerts.Incident{incident}})
		s.must(err)
		if n == 2 {
			break // waiting and open
		}
		now := s.Clock.Now()
		list, err := s.Store.ClaimDeliveries(s.ctx, now, now.Add(time.Minute), 10)
		s.must(err)
		d := list[0].Delivery
		d.Status, d.DueAt, d.EndAt = alerts.Delivered, time.Time{}, s.Clock.stored()
		s.must(s.Store.EndAttempt(s.ctx, d, s.Clock.stored()))
		incident.EndedAt = s.Clock.stored()
		_, err = s.Store.Advance(s.ctx, alerts.Advance{RuleID: r.ID, Seq: int64(2*n + 2), Ended: []alerts.Incident{incident}})
		s.must(err)
		s.Clock.Add(time.Hour)
	}
	s.must(s.Store.PruneAlerts(s.ctx, s.Clock.Now().Add(-90*time.Minute)))
	sent, err := s.Store.Deliveries(s.ctx, "", alerts.Filter{})
	s.must(err)
	incidents, err := s.Store.Incidents(s.ctx, "", alerts.Filter{})
	s.must(err)
	s.same("what is left", []int{len(sent), len(incidents)}, []int{2, 2})
}
