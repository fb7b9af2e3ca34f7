// Package storetest contains the tests that package store passes on each engine. They test the
// contracts of tenants.Store, plans.Store, exceptions.Store, accounts.Store, accounts.PeopleStore,
// audit.Store, audit.Verifier, metrics.Store, nodes.Store, alerts.Store, sharing.Store,
// savedfilters.Store and snapshot.Source.
package storetest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/journal"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/configuration"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Store is everything that is kept.
type Store interface {
	tenants.Store
	plans.Store
	exceptions.Store
	accounts.PeopleStore
	audit.Store
	audit.EventStore
	audit.Verifier
	snapshot.Source
	metrics.Store
	demo.Store
	nodes.Store
	alerts.Store
	sharing.Store
	savedfilters.Store
	configuration.Store
	snapshot.KeyUseStore
	journal.Store
	Empty(ctx context.Context) (bool, error)
	Once(ctx context.Context, id, body [32]byte, answer func(context.Context) ([]byte, error)) (first []byte, repeated bool, err error)
	NoteSetting(ctx context.Context, name, value string, e audit.Entry) error
}

// A Fixture is an empty database with the current schema.
type Fixture struct {
	Store Store
	// Other is a second Store on the same database, like the Store of another process.
	Other Store
	// Clock is the clock of both Stores.
	Clock *Clock
	// Exec runs a statement directly on the database, without the Store.
	Exec func(statement string, args ...any) error
	// Unguard contains the statements that remove the protection of the audit log against changes.
	Unguard []string
}

// A Clock stands still until a test changes its time.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock whose time has nanoseconds and a time zone. A Store stores neither.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 11, 21, 12, 0, 0, 123456789, time.FixedZone("", 3600))}
}

// Now is for Config.Now.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// stored returns the time of the clock with the precision of a Store.
func (c *Clock) stored() time.Time { return c.Now().UTC().Truncate(time.Microsecond) }

// Run runs the suite; open returns a new Fixture for each test.
func Run(t *testing.T, open func(t *testing.T) Fixture) {
	tests := []struct {
		name string
		run  func(*suite)
	}{
		{"tenants are made, read, changed and deleted", testTenantLife},
		{"a tenant's writes are refused for a reason", testTenantRefusals},
		{"tenants are found by part of slug or name, status and plan", testTenantFilter},
		{"pages of tenants are stable while others are made", testTenantPages},
		{"numbers are never given twice", testNumbers},
		{"a tenant's plan revision moves with its plan only", testPlanRevision},
		{"keys are made, rotated and revoked", testKeyLife},
		{"keys are refused for a reason", testKeyRefusals},
		{"a key is revoked with the keys that it created", testKeysCreatedBy},
		{"addresses of keys that cannot be read contain no address", testBrokenNetworks},
		{"the last use of keys is stored, and is no edit", testKeyUses},
		{"nothing of a tenant is reached through another", testIsolation},
		{"operator keys are made, rotated and revoked", testOperatorKeyLife},
		{"the last operator key stays", testLastOperatorKey},
		{"settings are kept", testSettings},
		{"what nodes find out is noted once", testNotedSettings},
		{"a lease has one holder until it is dropped", testDropLease},
		{"plans are made, read, changed and deleted", testPlanLife},
		{"a plan's writes are refused for a reason", testPlanRefusals},
		{"documents come back as they were", testDocumentRoundTrip},
		{"versions are numbered and never change", testVersions},
		{"what is told of the past is dated so, and its lines are not", testDated},
		{"numbers in force have their revision and the former ones", testFormers},
		{"at most MaxFormers are kept", testMaxFormers},
		{"cells are shared by plans and differ in five parts", testCells},
		{"a rollback puts the old numbers in force again", testRollback},
		{"overrides are made, read and ended", testOverrideLife},
		{"list entries are made, read and removed", testListLife},
		{"blocks are made, read and ended", testBlockLife},
		{"grants are made, read, voided and expire", testGrantLife},
		{"the grants of a limit and a key have a bound", testGrantBounds},
		{"what is set is refused for a reason", testExceptionsRefusals},
		{"so much is set for a tenant and no more", testExceptionsBounds},
		{"nothing that is set reaches another tenant", testExceptionsIsolation},
		{"changes have what was set", testExceptionsChanges},
		{"a row that cannot be read has no effect and no company", testExceptionsBroken},
		{"what has ended is removed once, with its line", testEndExpired},
		{"nodes that remove at once remove once", testEndExpiredAtOnce},
		{"a reset leaves a line", testNoteReset},
		{"a line that cannot be written stops what is set", testExceptionsAuditFailure},
		{"every write leaves one audit line", testAuditLines},
		{"a line that cannot be written stops the change", testAuditFailure},
		{"the audit log is only added to", testAuditOnlyAdded},
		{"audit lines are found and paged newest first", testAuditFilter},
		{"changes since 0 are the whole world", testChangesWhole},
		{"changes are what changed, and tombstones", testChangesSince},
		{"a document that cannot be read breaks its plan only", testChangesBroken},
		{"concurrent edits commit in the order of their revisions", testConcurrentEdits},
		{"a failed edit takes no revision", testFailedEdit},
		{"an empty database says so", testEmpty},
		{"notify calls after an edit", testNotify},
		{"a context that ended is told apart", testCanceled},
	}
	for _, test := range slices.Concat(
		tests, countTests, auditTests, peopleTests, nodeTests, alertTests, sharingTests, savedFilterTests,
		onceTests, wallTests, togetherTests, durableTests,
	) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			test.run(&suite{T: t, Fixture: f, ctx: t.Context()})
		})
	}
}

// A suite contains the data that each test needs.
type suite struct {
	*testing.T
	Fixture
	ctx   context.Context
	count int
}

// must ends the test on an error.
func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// wantKind checks the kind and code of an error.
func (s *suite) wantKind(err error, kind problem.Kind, code string) {
	s.Helper()
	p, ok := asProblem(err)
	if !ok || p.Kind != kind || p.Code != code {
		s.Errorf("error %v; want kind %v, code %q", err, kind, code)
	}
}

// same compares values by content. A nil slice equals an empty slice.
func (s *suite) same(what string, got, want any) {
	s.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		s.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// entry is a line for an action.
func entry(action string) audit.Entry {
	return audit.Entry{
		Actor:  audit.Actor{Kind: "operator_key", ID: "k1", Name: "admin"},
		Origin: audit.Origin{RequestID: "r1", Address: "192.0.2.1"},
		Action: action,
	}
}

func (s *suite) tenant(slug, plan string) tenants.Tenant {
	s.Helper()
	t, err := s.Store.CreateTenant(s.ctx, tenants.Tenant{Slug: slug, Document: tenantDocument(slug, plan)}, entry("tenant.create"))
	s.must(err)
	return t
}

func tenantDocument(name, plan string) tenants.Document {
	return tenants.Document{
		Name: name, Status: tenants.Active, Plan: plan, TimeZone: "UTC", BillingAnchorDay: 1, NoPolicy: tenants.Allow,
	}
}

func (s *suite) key(tenantID string) tenants.Key {
	s.Helper()
	k, err := s.Store.CreateKey(s.ctx, s.newKey(tenantID), entry("key.create"))
	s.must(err)
	return k
}

func (s *suite) newKey(tenantID string) tenants.Key {
	token := tenants.NewToken(tenants.TenantToken)
	s.count++
	return tenants.Key{
		TenantID: tenantID, Name: fmt.Sprintf("Key %d", s.count), Hash: tenants.HashToken(token), Hint: tenants.TokenHint(token),
		Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead}, Bounds: tenants.Bounds{MaxCost: tenants.MaxCost, PeekOnly: true},
	}
}

func (s *suite) operatorKey(scopes ...tenants.Scope) tenants.Key {
	s.Helper()
	k, err := s.Store.CreateKey(s.ctx, s.newOperatorKey(scopes...), entry("operator_key.create"))
	s.must(err)
	return k
}

func (s *suite) newOperatorKey(scopes ...tenants.Scope) tenants.Key {
	token := tenants.NewToken(tenants.OperatorToken)
	s.count++
	return tenants.Key{
		Name: fmt.Sprintf("Operator %d", s.count), Hash: tenants.HashToken(token), Hint: tenants.TokenHint(token), Scopes: scopes,
	}
}

// plan makes a published plan of policies.
func (s *suite) plan(slug string, policies ...plans.Policy) plans.Plan {
	s.Helper()
	p, err := s.Store.CreatePlan(s.ctx, plans.Plan{Slug: slug, Draft: document(slug, policies...)}, entry("plan.create"))
	s.must(err)
	return s.publish(p)
}

func (s *suite) publish(p plans.Plan) plans.Plan {
	s.Helper()
	p, _, err := s.Store.Publish(s.ctx, p.ID, p.DraftRevision, entry("plan.publish"))
	s.must(err)
	return p
}

// revise saves another draft and publishes it.
func (s *suite) revise(p plans.Plan, policies ...plans.Policy) plans.Plan {
	s.Helper()
	p, err := s.Store.SaveDraft(s.ctx, p.ID, document(p.Slug, policies...), p.DraftRevision, entry("plan.save_draft"))
	s.must(err)
	return s.publish(p)
}

func document(name string, policies ...plans.Policy) plans.Document {
	return plans.New(plans.Content{Name: name, Policies: policies})
}

// policy has one limit, l1.
func policy(slug string, l enforcement.Limit, countBy ...string) plans.Policy {
	if l.Name == "" {
		l.Name = "l1"
	}
	return plans.Policy{
		Slug: slug, CountBy: countBy, Missing: enforcement.MissingShared, Mode: enforcement.PolicyEnforce,
		OnFailure: enforcement.OnFailureLocal, Consistency: enforcement.Exact, Limits: []enforcement.Limit{l},
	}
}

func window(quota int64) enforcement.Limit {
	return enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: quota, Window: time.Minute}
}

func bucket(quota, burst int64) enforcement.Limit {
	return enforcement.Limit{Algorithm: enforcement.TokenBucket, Quota: quota, Burst: burst, Window: time.Second}
}

// world returns all rows, as a node reads them for its first snapshot.
func (s *suite) world() snapshot.Changes {
	s.Helper()
	return s.since(0)
}

func (s *suite) since(revision int64) snapshot.Changes {
	s.Helper()
	c, err := s.Store.Changes(s.ctx, revision)
	s.must(err)
	return c
}

func (s *suite) revision() int64 {
	s.Helper()
	n, err := s.Store.Revision(s.ctx)
	s.must(err)
	return n
}

// inForce returns the limits of a published plan, by policy slug.
func (s *suite) inForce(planID string) map[string]plans.Published {
	s.Helper()
	limits := make(map[string]plans.Published)
	for _, p := range s.world().Plans {
		if p.ID != planID {
			continue
		}
		if p.Broken != "" {
			s.Fatalf("plan %s is broken: %s", p.Slug, p.Broken)
		}
		for _, l := range p.Limits {
			limits[l.Cell.Policy] = l
		}
	}
	return limits
}

// ids of anything, in order.
func ids[T any](list []T, id func(T) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = id(v)
	}
	return out
}

func tenantID(t tenants.Tenant) string   { return t.ID }
func keyID(k tenants.Key) string         { return k.ID }
func planID(p plans.Plan) string         { return p.ID }
func entryID(e audit.Entry) string       { return e.ID }
func operatorKeyID(k tenants.Key) string { return k.ID }
