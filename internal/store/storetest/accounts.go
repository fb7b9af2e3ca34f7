package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

func testOperatorKeyLife(s *suite) {
	ask := s.newOperatorKey(tenants.ScopeManage, tenants.ScopeCheck)
	k, err := s.Store.CreateKey(s.ctx, ask, entry("operator_key.create"))
	s.must(err)
	want := ask
	want.ID, want.CreatedAt, want.Revision = k.ID, s.Clock.stored(), s.revision()
	s.same("made", k, want)
	got, err := s.Store.Key(s.ctx, "", k.ID)
	s.must(err)
	s.same("read", got, want)

	until := s.Clock.stored().Add(time.Hour)
	next, err := s.Store.RotateKey(s.ctx, "", k.ID, until, s.newOperatorKey(tenants.ScopeManage), entry("operator_key.rotate"))
	s.must(err)
	want.RevokedAt, want.Revision = until, s.revision()
	got, err = s.Store.Key(s.ctx, "", k.ID)
	s.must(err)
	s.same("rotated", got, want)
	list, err := s.Store.Keys(s.ctx, "", tenants.Filter{})
	s.must(err)
	s.same("listed", ids(list, operatorKeyID), []string{k.ID, next.ID})
	list, err = s.Store.Keys(s.ctx, "", tenants.Filter{Limit: 1, After: k.ID})
	s.must(err)
	s.same("next page", ids(list, operatorKeyID), []string{next.ID})

	double := s.newOperatorKey(tenants.ScopeRead)
	double.Hash = k.Hash
	_, err = s.Store.CreateKey(s.ctx, double, entry("operator_key.create"))
	s.wantKind(err, problem.Conflict, "key_exists")
	_, err = s.Store.Key(s.ctx, "", "nobody")
	s.wantKind(err, problem.NotFound, "")
}

func testLastOperatorKey(s *suite) {
	reader := s.operatorKey(tenants.ScopeRead)
	first := s.operatorKey(tenants.ScopeManage)
	revoke := func(id string) error {
		_, err := s.Store.RevokeKey(s.ctx, "", id, s.Clock.Now(), entry("operator_key.revoke"))
		return err
	}
	s.wantKind(revoke(first.ID), problem.Conflict, "last_operator_key")
	s.must(revoke(reader.ID)) // it cannot manage

	_, err := s.Store.RotateKey(s.ctx, "", first.ID, s.Clock.Now(), s.newOperatorKey(tenants.ScopeRead), entry("operator_key.rotate"))
	s.wantKind(err, problem.Conflict, "last_operator_key") // without the second key, no key with the scope manage would be left
	second, err := s.Store.RotateKey(s.ctx, "", first.ID, s.Clock.Now().Add(time.Hour), s.newOperatorKey(tenants.ScopeManage),
		entry("operator_key.rotate"))
	s.must(err)
	s.wantKind(revoke(second.ID), problem.Conflict, "last_operator_key") // the first key ends soon, so it does not count

	ending := s.newOperatorKey(tenants.ScopeManage)
	ending.ExpiresAt = s.Clock.Now().Add(time.Minute)
	third, err := s.Store.CreateKey(s.ctx, ending, entry("operator_key.create"))
	s.must(err)
	s.Clock.Add(2 * time.Minute)
	s.wantKind(revoke(second.ID), problem.Conflict, "last_operator_key") // the third one has expired
	s.must(revoke(third.ID))                                             // as it has
	s.operatorKey(tenants.ScopeManage)
	s.must(revoke(second.ID))
	s.must(revoke(second.ID)) // again changes nothing
}

func testSettings(s *suite) {
	value, err := s.Store.Setting(s.ctx, "title")
	s.must(err)
	s.same("without one", value, "")
	for _, want := range []string{`{"a": 1}`, "b", ""} {
		s.must(s.Store.PutSetting(s.ctx, "title", want, entry("setting.put")))
		value, err = s.Other.Setting(s.ctx, "title")
		s.must(err)
		s.same("read back", value, want)
	}
}

// If several nodes note the same value, only the first node writes an audit line. The first value
// of a setting causes no audit line.
func testNotedSettings(s *suite) {
	for i, note := range []struct {
		value string
		lines int
	}{{"a", 0}, {"a", 0}, {"b", 1}, {"b", 1}, {"a", 2}} {
		for _, store := range []Store{s.Store, s.Other} {
			s.must(store.NoteSetting(s.ctx, "redis", note.value, entry("redis.lost")))
		}
		value, err := s.Store.Setting(s.ctx, "redis")
		s.must(err)
		s.same(fmt.Sprintf("value %d", i), value, note.value)
		s.same(fmt.Sprintf("lines after %d", i), len(s.lines(audit.Filter{Action: "redis.lost"})), note.lines)
	}
}

func testEmpty(s *suite) {
	empty := func() bool {
		s.Helper()
		yes, err := s.Store.Empty(s.ctx)
		s.must(err)
		return yes
	}
	s.must(s.Store.PutSetting(s.ctx, "title", "x", entry("setting.put")))
	if !empty() {
		s.Error("a setting is no content")
	}
	t := s.tenant("acme", "")
	if empty() {
		s.Error("there is a tenant")
	}
	s.must(s.Store.DeleteTenant(s.ctx, t.ID, t.Revision, entry("tenant.delete")))
	if !empty() {
		s.Error("the tenant was deleted")
	}
	s.operatorKey(tenants.ScopeManage)
	if empty() {
		s.Error("there is an operator key")
	}
}

func testCanceled(s *suite) {
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	_, err := s.Store.Tenants(ctx, tenants.Filter{})
	if !errors.Is(err, context.Canceled) {
		s.Errorf("list with a context that ended: %v", err)
	}
	err = s.Store.PutSetting(ctx, "title", "x", entry("setting.put"))
	if !errors.Is(err, context.Canceled) {
		s.Errorf("write with a context that ended: %v", err)
	}
	if n := s.revision(); n != 0 {
		s.Errorf("the revision is %d", n)
	}
}
