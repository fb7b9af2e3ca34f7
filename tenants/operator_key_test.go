package tenants_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

func TestOperatorKeyLife(t *testing.T) {
	t.Parallel()
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "key create", Name: "key create"}, audit.Origin{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	st, err := store.Open(ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	s := tenants.NewService(st, tenants.Config{Now: clock})
	conflict := func(err error, code string) {
		t.Helper()
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Conflict || p.Code != code {
			t.Errorf("%v, want a conflict with code %s", err, code)
		}
	}

	if _, _, err := s.CreateOperatorKey(ctx, tenants.NewKey{}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a key without name and scopes: %v", err)
	}
	k, token, err := s.CreateOperatorKey(ctx, tenants.NewKey{Name: "ops", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeManage}})
	if err != nil {
		t.Fatal(err)
	}
	if !tenants.WellFormed(token) || !strings.HasPrefix(token, "hg_op_") || k.Hash != tenants.HashToken(token) || !k.ExpiresAt.IsZero() {
		t.Errorf("key %+v of token %s", k, token)
	}
	_, err = s.RevokeOperatorKey(ctx, k.ID)
	conflict(err, "last_operator_key")

	next, _, err := s.RotateOperatorKey(ctx, k.ID, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if next.ID == k.ID || next.Name != "ops" || !next.ExpiresAt.IsZero() {
		t.Errorf("successor %+v", next)
	}
	if old, err := s.OperatorKey(ctx, k.ID); err != nil || !old.RevokedAt.Equal(now.Add(time.Hour)) {
		t.Errorf("rotated %+v, %v", old, err)
	}
	_, _, err = s.RotateOperatorKey(ctx, k.ID, 0)
	conflict(err, "key_rotated")
	if _, _, err := s.RotateOperatorKey(ctx, next.ID, -1); !problem.Is(err, problem.Invalid) {
		t.Errorf("a negative overlap: %v", err)
	}
	for range 2 {
		if ended, err := s.RevokeOperatorKey(ctx, k.ID); err != nil || !ended.RevokedAt.Equal(now) {
			t.Errorf("revoked %+v, %v", ended, err)
		}
	}
	_, _, err = s.RotateOperatorKey(ctx, k.ID, 0)
	conflict(err, "key_ended")
	if _, err := s.RevokeOperatorKey(ctx, "0190f5c4-7e1a-7b3c-8d2e-0123456789ab"); !problem.Is(err, problem.NotFound) {
		t.Errorf("a key that is not there: %v", err)
	}
	list, err := s.OperatorKeys(ctx, tenants.Filter{})
	if err != nil || len(list) != 2 || list[0].ID != k.ID {
		t.Errorf("keys %+v, %v", list, err)
	}

	log, err := st.AuditEntries(ctx, audit.Filter{Limit: 10})
	if err != nil || len(log) != 3 {
		t.Fatalf("%d lines in the audit log, want 3; %v", len(log), err)
	}
	for i, action := range []string{"operator_key.revoke", "operator_key.rotate", "operator_key.create"} {
		e := log[i]
		if e.Action != action || e.Object != k.ID || e.TenantID != "" || e.Actor.Kind != "command" {
			t.Errorf("line %d: %+v, want %s", i, e, action)
		}
		if strings.Contains(string(e.Before)+string(e.After), token) {
			t.Errorf("line %d shows the token", i)
		}
	}
}
