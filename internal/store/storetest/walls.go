package storetest

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/tenants"
)

// wallTests hold the walls between tenants.
var wallTests = []struct {
	name string
	run  func(*suite)
}{
	{"no method reaches through another tenant", testWalls},
}

// noTenant lists the methods without a tenant: methods of the operator, of the system, of
// one person, or of the holder of a secret.
var noTenant = []string{
	// The operator's.
	"Tenant", "Tenants", "CreateTenant", "UpdateTenant", "DeleteTenant",
	"Plan", "Plans", "CreatePlan", "SaveDraft", "Publish", "PublishVersion", "DeletePlan", "Version", "Versions",
	"Setting", "PutSetting", "NoteSetting",
	// The system's.
	"Together", "Exceptions", "Revision", "Changes", "Notify", "Empty", "EndExpired", "EndOverSessions", "VerifyAudit", "WriteAudit",
	"PutNode", "RemoveNode", "Census",
	"Watched", "AllMaintenances", "Advance", "ClaimDeliveries", "EndAttempt", "PruneAlerts",
	"ResealFactors", "Once", "AddCounts", "WriteJournal", "ReadJournal", "AddKeyUses", "TakeLease", "DropLease",
	"RollUpsDue", "RollUp", "Prune", "Kept", "Mark",
	// Methods about one person; the service checks that the person belongs to the tenant.
	"User", "UserByEmail", "UserBySubject", "CreateUser", "DeleteUser", "Sessions", "EndSession",
	"Factors", "AddFactor", "RemoveFactor", "ResetFactors", "UseFactor", "PutRecoveryCodes", "UseRecoveryCode", "CreatePending",
	// Of whoever has the secret.
	"OpenSharedLink", "CreateSession", "Session", "RenewSession", "Invitation", "AcceptInvitation", "MailInvitation",
	"Pending", "FinishPending", "ConfirmSession", "PutChallenge", "TakeChallenge",
}

// A walled has the objects of a tenant, and another tenant that asks for them.
type walled struct {
	own, other tenants.Tenant
	key        tenants.Key
	override   exceptions.Override
	listed     exceptions.Entry
	block      exceptions.Block
	grant      exceptions.Grant
	member     accounts.User
	invitation accounts.Invitation
	rule       alerts.Rule
	channel    alerts.Channel
	delivery   alerts.Delivery
	incident   alerts.Incident
	window     alerts.Maintenance
	shared     sharing.Link
	filter     savedfilters.Filter
}

func (s *suite) walled() walled {
	s.Helper()
	w := walled{own: s.tenant("own", ""), other: s.tenant("other", "")}
	w.key = s.key(w.own.ID)
	until := s.Clock.Now().Add(time.Hour)
	var err error
	w.override, err = s.Store.CreateOverride(s.ctx, s.newOverride(w.own.ID, "all"), entry("override.create"))
	s.must(err)
	w.listed, err = s.Store.CreateEntry(s.ctx, exceptions.Entry{TenantID: w.own.ID, List: exceptions.Deny, Attribute: "user", Value: "u"},
		entry("list_entry.create"))
	s.must(err)
	w.block, err = s.Store.CreateBlock(s.ctx, exceptions.Block{TenantID: w.own.ID, Policy: "all", Reason: "r", ExpiresAt: until},
		entry("block.create"))
	s.must(err)
	w.grant = s.grant(s.newGrant(w.own.ID, "u1"))
	w.member = s.user(accounts.TenantAdmin, w.own.ID)
	w.invitation = s.invite(accounts.Invitation{Email: "new@example.com", Role: accounts.TenantViewer, TenantID: w.own.ID})
	w.rule, w.channel = s.rule(w.own.ID), s.channel(w.own.ID)
	w.delivery = alerts.Delivery{
		ID: audit.NewID(), TenantID: w.own.ID, ChannelID: w.channel.ID, Event: alerts.EventTest,
		CreatedAt: s.Clock.stored(), Status: alerts.Waiting,
	}
	s.must(s.Store.QueueDelivery(s.ctx, w.delivery, entry("x")))
	w.window, w.shared = s.maintenance(w.own.ID), s.sharedLink(w.own.ID, nil)
	w.filter = s.savedFilter(w.own.ID, w.member.ID, "x", true)
	w.incident = alerts.Incident{ID: audit.NewID(), TenantID: w.own.ID, RuleID: w.rule.ID, Rule: w.rule.Document, BeganAt: s.Clock.stored()}
	_, err = s.Store.Advance(s.ctx, alerts.Advance{RuleID: w.rule.ID, Seq: 1, Began: []alerts.Incident{w.incident}})
	s.must(err)
	s.must(s.Store.AddCounts(s.ctx, metrics.Batch{
		Node: "a", Seq: 1, Counts: []metrics.CountRow{count(midday, w.own.Number, 10)},
		Sketches: []metrics.SketchRow{sketch(midday, w.own.Number, "a", "1")},
		Refusals: []metrics.Refusal{refusal(1, w.own.Number, s.Clock.Now())},
	}))
	return w
}

// asked calls each method as the other tenant and counts what it finds. The caller checks
// the errors.
func (w walled) asked(s *suite) map[string]func() (found int, err error) {
	late := s.Clock.Now().Add(time.Hour)
	b := w.other.ID
	counts := metrics.CountQuery{
		Step: metrics.Minute, From: midday, To: midday + anHour, Tenant: w.other.Number,
		Tenants: []uint32{w.other.Number}, Kind: metrics.KindTotal,
	}
	sketches := metrics.SketchQuery{
		Step: metrics.Minute, From: midday, To: midday + anHour, Tenant: w.other.Number,
		Name: metrics.SketchLimitedKeys,
	}
	return map[string]func() (int, error){
		"Keys": func() (int, error) { l, err := s.Store.Keys(s.ctx, b, tenants.Filter{}); return len(l), err },
		"Key":  func() (int, error) { _, err := s.Store.Key(s.ctx, b, w.key.ID); return 1, err },
		"CreateKey": func() (int, error) {
			k := s.newKey(b)
			k.ID = w.key.ID
			_, err := s.Store.CreateKey(s.ctx, k, entry("x"))
			return 1, err
		},
		"RotateKey": func() (int, error) {
			_, err := s.Store.RotateKey(s.ctx, b, w.key.ID, late, s.newKey(w.own.ID), entry("x"))
			return 1, err
		},
		"RevokeKey": func() (int, error) { _, err := s.Store.RevokeKey(s.ctx, b, w.key.ID, late, entry("x")); return 1, err },
		"RevokeKeyAndCreated": func() (int, error) {
			line := func(tenants.Key) audit.Entry { return entry("x") }
			_, err := s.Store.RevokeKeyAndCreated(s.ctx, b, w.key.ID, late, entry("x"), line)
			return 1, err
		},
		"KeysCreatedBy": func() (int, error) {
			l, err := s.Store.KeysCreatedBy(s.ctx, b, w.key.ID, time.Time{})
			return len(l), err
		},

		"Overrides": func() (int, error) { l, err := s.Store.Overrides(s.ctx, b, exceptions.Filter{}); return len(l), err },
		"Override":  func() (int, error) { _, err := s.Store.Override(s.ctx, b, w.override.ID); return 1, err },
		"CreateOverride": func() (int, error) {
			o := s.newOverride(b, "all")
			o.ID = w.override.ID
			_, err := s.Store.CreateOverride(s.ctx, o, entry("x"))
			return 1, err
		},
		"UpdateOverride": func() (int, error) {
			o := w.override
			o.TenantID = b
			_, err := s.Store.UpdateOverride(s.ctx, o, o.Revision, entry("x"))
			return 1, err
		},
		"DeleteOverride": func() (int, error) { return 1, s.Store.DeleteOverride(s.ctx, b, w.override.ID, entry("x")) },

		"Entries": func() (int, error) { l, err := s.Store.Entries(s.ctx, b, exceptions.Filter{}); return len(l), err },
		"Entry":   func() (int, error) { _, err := s.Store.Entry(s.ctx, b, w.listed.ID); return 1, err },
		"CreateEntry": func() (int, error) {
			_, err := s.Store.CreateEntry(s.ctx, exceptions.Entry{
				ID: w.listed.ID, TenantID: b, List: exceptions.Deny, Attribute: "user",
				Value: "u",
			}, entry("x"))
			return 1, err
		},
		"DeleteEntry": func() (int, error) { return 1, s.Store.DeleteEntry(s.ctx, b, w.listed.ID, entry("x")) },

		"Blocks": func() (int, error) { l, err := s.Store.Blocks(s.ctx, b, exceptions.Filter{}); return len(l), err },
		"Block":  func() (int, error) { _, err := s.Store.Block(s.ctx, b, w.block.ID); return 1, err },
		"CreateBlock": func() (int, error) {
			_, err := s.Store.CreateBlock(s.ctx, exceptions.Block{ID: w.block.ID, TenantID: b, Policy: "all", Reason: "r", ExpiresAt: late},
				entry("x"))
			return 1, err
		},
		"DeleteBlock": func() (int, error) { return 1, s.Store.DeleteBlock(s.ctx, b, w.block.ID, entry("x")) },
		"Grants":      func() (int, error) { l, err := s.Store.Grants(s.ctx, b, exceptions.Filter{}); return len(l), err },
		"Grant":       func() (int, error) { _, err := s.Store.Grant(s.ctx, b, w.grant.ID); return 1, err },
		"CreateGrant": func() (int, error) {
			_, err := s.Store.CreateGrant(s.ctx, exceptions.Grant{
				ID: w.grant.ID, TenantID: b, Policy: "all", Limit: "l1", Units: 1, Reason: "r", ExpiresAt: late,
			}, entry("x"))
			return 1, err
		},
		"DeleteGrant": func() (int, error) { return 1, s.Store.DeleteGrant(s.ctx, b, w.grant.ID, entry("x")) },
		"NoteReset":   func() (int, error) { return 1, s.Store.NoteReset(s.ctx, nobody, entry("x")) }, // it has no object

		"Users": func() (int, error) {
			l, err := s.Store.Users(s.ctx, accounts.UserFilter{TenantID: b, Query: w.member.Email})
			return len(l), err
		},
		"UpdateUser": func() (int, error) {
			u := w.member
			u.TenantID = b
			_, err := s.Store.UpdateUser(s.ctx, u, u.Revision, "", entry("x"))
			return 1, err
		},
		"Invitations": func() (int, error) {
			l, err := s.Store.Invitations(s.ctx, accounts.UserFilter{TenantID: b})
			return len(l), err
		},
		"CreateInvitation": func() (int, error) {
			_, err := s.Store.CreateInvitation(s.ctx, accounts.Invitation{
				Hash: s.hash(), Email: w.member.Email, Role: accounts.TenantAdmin, TenantID: b, UserID: w.member.ID, ExpiresAt: late,
			}, entry("x"))
			return 1, err
		},
		"DeleteInvitation": func() (int, error) { return 1, s.Store.DeleteInvitation(s.ctx, b, w.invitation.ID, entry("x")) },

		"Rules": func() (int, error) { l, err := s.Store.Rules(s.ctx, b, alerts.Filter{}); return len(l), err },
		"Rule":  func() (int, error) { _, err := s.Store.Rule(s.ctx, b, w.rule.ID); return 1, err },
		"CreateRule": func() (int, error) {
			_, err := s.Store.CreateRule(s.ctx, alerts.Rule{ID: w.rule.ID, TenantID: b}, entry("x"))
			return 1, err
		},
		"ChangeRule": func() (int, error) {
			r := w.rule
			r.TenantID = b
			_, err := s.Store.ChangeRule(s.ctx, r, r.Version, entry("x"))
			return 1, err
		},
		"DeleteRule": func() (int, error) { return 1, s.Store.DeleteRule(s.ctx, b, w.rule.ID, entry("x")) },
		"Channels":   func() (int, error) { l, err := s.Store.Channels(s.ctx, b, alerts.Filter{}); return len(l), err },
		"Channel":    func() (int, error) { _, err := s.Store.Channel(s.ctx, b, w.channel.ID); return 1, err },
		"CreateChannel": func() (int, error) {
			_, err := s.Store.CreateChannel(s.ctx, alerts.Channel{ID: w.channel.ID, TenantID: b}, entry("x"))
			return 1, err
		},
		"ChangeChannel": func() (int, error) {
			c := w.channel
			c.TenantID = b
			_, err := s.Store.ChangeChannel(s.ctx, c, c.Version, entry("x"))
			return 1, err
		},
		"DeleteChannel": func() (int, error) { return 1, s.Store.DeleteChannel(s.ctx, b, w.channel.ID, entry("x")) },
		"Incidents":     func() (int, error) { l, err := s.Store.Incidents(s.ctx, b, alerts.Filter{}); return len(l), err },
		"Maintenances":  func() (int, error) { l, err := s.Store.Maintenances(s.ctx, b, alerts.Filter{}); return len(l), err },
		"Maintenance":   func() (int, error) { _, err := s.Store.Maintenance(s.ctx, b, w.window.ID); return 1, err },
		"CreateMaintenance": func() (int, error) {
			_, err := s.Store.CreateMaintenance(s.ctx, alerts.Maintenance{ID: w.window.ID, TenantID: b}, entry("x"))
			return 1, err
		},
		"DeleteMaintenance": func() (int, error) { return 1, s.Store.DeleteMaintenance(s.ctx, b, w.window.ID, entry("x")) },
		"SavedFilters": func() (int, error) {
			l, err := s.Store.SavedFilters(s.ctx, savedfilters.Place{TenantID: b, Page: w.filter.Page}, w.member.ID)
			return len(l), err
		},
		"SavedFiltersOf": func() (int, error) { l, err := s.Store.SavedFiltersOf(s.ctx, b, w.member.ID); return len(l), err },
		"SavedFilter": func() (int, error) {
			_, err := s.Store.SavedFilter(s.ctx, savedfilters.Place{TenantID: b, Page: w.filter.Page}, w.filter.ID)
			return 1, err
		},
		"CreateSavedFilter": func() (int, error) {
			f := w.filter
			f.TenantID = b
			return 1, s.Store.CreateSavedFilter(s.ctx, f, nil)
		},
		"ChangeSavedFilter": func() (int, error) {
			f := w.filter
			f.TenantID = b
			return 1, s.Store.ChangeSavedFilter(s.ctx, f, nil)
		},
		"DeleteSavedFilter": func() (int, error) {
			f := w.filter
			f.TenantID = b
			return 1, s.Store.DeleteSavedFilter(s.ctx, f, nil)
		},
		"SharedLinks": func() (int, error) {
			l, err := s.Store.SharedLinks(s.ctx, b, s.Clock.Now(), sharing.Filter{})
			return len(l), err
		},
		"SharedLink": func() (int, error) { _, err := s.Store.SharedLink(s.ctx, b, w.shared.ID); return 1, err },
		"CreateSharedLink": func() (int, error) {
			_, err := s.Store.CreateSharedLink(s.ctx, sharing.Link{ID: w.shared.ID, TenantID: b, Hash: s.hash()}, nil, entry("x"))
			return 1, err
		},
		"DeleteSharedLink": func() (int, error) { return 1, s.Store.DeleteSharedLink(s.ctx, b, w.shared.ID, entry("x")) },
		"Incident":         func() (int, error) { _, err := s.Store.Incident(s.ctx, b, w.incident.ID); return 1, err },
		"Delivery":         func() (int, error) { _, _, err := s.Store.Delivery(s.ctx, b, w.delivery.ID); return 1, err },
		"Deliveries":       func() (int, error) { l, err := s.Store.Deliveries(s.ctx, b, alerts.Filter{}); return len(l), err },
		"QueueDelivery": func() (int, error) {
			d := w.delivery
			d.ID, d.TenantID = audit.NewID(), b
			return 1, s.Store.QueueDelivery(s.ctx, d, entry("x"))
		},
		"RepeatDelivery": func() (int, error) {
			_, err := s.Store.RepeatDelivery(s.ctx, b, w.delivery.ID, late, entry("x"))
			return 1, err
		},

		"AuditEntries": func() (int, error) {
			l, err := s.Store.AuditEntries(s.ctx, audit.Filter{TenantID: b, Object: w.key.ID})
			return len(l), err
		},
		"AuditEvents": func() (int, error) {
			now := s.Clock.stored()
			l, err := s.Store.AuditEvents(s.ctx, audit.EventFilter{TenantID: b, From: now.Add(-time.Hour), To: now.Add(time.Hour)})
			return len(l), err
		},
		"Counts":    func() (int, error) { l, err := s.Store.Counts(s.ctx, counts); return len(l), err },
		"SumCounts": func() (int, error) { l, err := s.Store.SumCounts(s.ctx, counts); return len(l), err },
		"Sketches":  func() (int, error) { l, err := s.Store.Sketches(s.ctx, sketches); return len(l), err },
		"Refusal": func() (int, error) {
			_, err := s.Store.Refusal(s.ctx, refusal(1, 0, late).ID, w.other.Number)
			return 1, err
		},
		"Refusals": func() (int, error) {
			l, err := s.Store.Refusals(s.ctx, metrics.RefusalFilter{Tenant: w.other.Number})
			return len(l), err
		},
	}
}

// Every method of the Store is called as tenant B for the objects of A, or is listed in
// noTenant. A new method fails the test until it has a call or is listed.
func testWalls(s *suite) {
	w := s.walled()
	asked := w.asked(s)
	contract := reflect.TypeFor[Store]()
	for i := range contract.NumMethod() {
		name := contract.Method(i).Name
		_, is := asked[name]
		if is == slices.Contains(noTenant, name) {
			s.Errorf("%s: say how another tenant asks for it, or that it takes none", name)
		}
	}
	world, lines := s.world(), s.lines(audit.Filter{Limit: 1000})
	for name, ask := range asked {
		found, err := ask()
		switch {
		case err == nil && found > 0:
			s.Errorf("%s gave another tenant %d", name, found)
		case problem.Is(err, problem.Conflict) && strings.HasPrefix(name, "Create"): // the id is taken
		case err != nil && !problem.Is(err, problem.NotFound):
			s.Errorf("%s: %v, want NotFound", name, err)
		}
	}
	s.same("the world", s.world(), world)
	s.same("the log", s.lines(audit.Filter{Limit: 1000}), lines)
	member, err := s.Store.User(s.ctx, w.member.ID)
	s.must(err)
	s.same("the member", member, w.member)
	_, err = s.Store.Invitation(s.ctx, w.invitation.Hash, s.Clock.Now())
	s.must(err)
}
