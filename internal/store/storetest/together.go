package storetest

import (
	"context"
	"errors"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

var togetherTests = []struct {
	name string
	run  func(*suite)
}{
	{"changes together are one revision, and seen by what changes", testTogether},
	{"changes together are all made or none", testTogetherFails},
	{"nothing that is changed together takes no revision", testTogetherUnchanged},
}

// makes returns a function that creates tenants and reads each of them.
func (s *suite) makes(slugs ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		for _, slug := range slugs {
			made := tenants.Tenant{Slug: slug, Document: tenantDocument(slug, "")}
			if _, err := s.Store.CreateTenant(ctx, made, entry("tenant.create")); err != nil {
				return err
			}
			if _, err := s.Store.Tenant(ctx, slug); err != nil {
				return err
			}
			if _, err := s.Other.Tenant(ctx, slug); !problem.Is(err, problem.NotFound) {
				s.Errorf("another store sees tenant %s before the commit: %v", slug, err)
			}
		}
		return nil
	}
}

func testTogether(s *suite) {
	before := s.revision()
	s.must(s.Store.Together(s.ctx, s.makes("a", "b", "c")))
	if after := s.revision(); after != before+1 {
		s.Errorf("revision %d after %d", after, before)
	}
	changes, err := s.Other.Changes(s.ctx, before)
	s.must(err)
	if len(changes.Tenants) != 3 {
		s.Errorf("%d changed tenants", len(changes.Tenants))
	}
	lines, err := s.Store.AuditEntries(s.ctx, audit.Filter{})
	s.must(err)
	if len(lines) != 3 || lines[0].Revision != before+1 || lines[2].ObjectName != "a" {
		s.Errorf("audit lines: %+v", lines)
	}
	if _, err := s.Store.VerifyAudit(s.ctx, audit.Verification{}); err != nil {
		s.Errorf("the chain: %v", err)
	}
}

func testTogetherFails(s *suite) {
	before, broken := s.revision(), errors.New("broken")
	for name, work := range map[string]func(context.Context) error{
		"at the end": func(ctx context.Context) error { return errors.Join(s.makes("a", "b")(ctx), broken) },
		"a conflict": s.makes("c", "c"),
	} {
		if err := s.Store.Together(s.ctx, work); err == nil {
			s.Errorf("%s: no error", name)
		}
	}
	list, err := s.Store.Tenants(s.ctx, tenants.Filter{})
	s.must(err)
	lines, err := s.Store.AuditEntries(s.ctx, audit.Filter{})
	s.must(err)
	if after := s.revision(); after != before || len(list)+len(lines) != 0 {
		s.Errorf("revision %d after %d, %d tenants, %d lines", after, before, len(list), len(lines))
	}
}

func testTogetherUnchanged(s *suite) {
	before := s.revision()
	s.must(s.Store.Together(s.ctx, func(ctx context.Context) error {
		_, err := s.Store.Tenants(ctx, tenants.Filter{})
		return err
	}))
	if after := s.revision(); after != before {
		s.Errorf("revision %d after %d", after, before)
	}
}
