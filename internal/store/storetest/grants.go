package storetest

import (
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// newGrant returns a grant of additional units for one user, valid for a day.
func (s *suite) newGrant(tenantID, user string) exceptions.Grant {
	g := exceptions.Grant{
		TenantID: tenantID, Policy: "all", Limit: "month", Units: 500, Reason: "invoice",
		ExpiresAt: s.Clock.Now().Add(24 * time.Hour), CreatedBy: entry("").Actor,
	}
	if user != "" {
		g.Key = map[string]string{"user": user}
	}
	return g
}

func (s *suite) grant(g exceptions.Grant) exceptions.Grant {
	s.Helper()
	g, err := s.Store.CreateGrant(s.ctx, g, entry("grant.create"))
	s.must(err)
	return g
}

func testGrantLife(s *suite) {
	acme := s.tenant("acme", "")
	made := s.grant(s.newGrant(acme.ID, "u1"))
	got, err := s.Store.Grant(s.ctx, acme.ID, made.ID)
	s.must(err)
	s.same("the grant", got, made)
	whole := s.newGrant(acme.ID, "")
	whole.Policy, whole.ExpiresAt = "other", s.Clock.Now().Add(time.Hour)
	whole = s.grant(whole)
	list, err := s.Store.Grants(s.ctx, acme.ID, exceptions.Filter{Limit: 10})
	s.must(err)
	whole.Key = map[string]string{}
	s.same("all", list, []exceptions.Grant{whole, made})
	list, err = s.Store.Grants(s.ctx, acme.ID, exceptions.Filter{Policy: "all", Limit: 10})
	s.must(err)
	s.same("of a policy", list, []exceptions.Grant{made})
	c, err := s.Store.Changes(s.ctx, made.Revision)
	s.must(err)
	s.same("after the first", c.Grants, []exceptions.Grant{whole})

	s.must(s.Store.DeleteGrant(s.ctx, acme.ID, made.ID, entry("grant.delete")))
	s.wantKind(s.Store.DeleteGrant(s.ctx, acme.ID, made.ID, entry("grant.delete")), problem.NotFound, "")
	n, err := s.Store.EndExpired(s.ctx, whole.ExpiresAt, 10)
	s.must(err)
	s.same("expired", n, 1)
	s.same("the line of the end", s.last().Action, "grant.expire")
	c, err = s.Store.Changes(s.ctx, whole.Revision)
	s.must(err)
	s.same("tombstones", len(c.Removed), 2)
	list, err = s.Store.Grants(s.ctx, acme.ID, exceptions.Filter{Limit: 10})
	s.must(err)
	s.same("left", len(list), 0)
}

func testGrantBounds(s *suite) {
	acme := s.tenant("acme", "")
	for range enforcement.MaxGrantsOfKey {
		s.grant(s.newGrant(acme.ID, "u1"))
	}
	create := func(change func(g *exceptions.Grant)) error {
		g := s.newGrant(acme.ID, "u1")
		change(&g)
		_, err := s.Store.CreateGrant(s.ctx, g, entry("grant.create"))
		return err
	}
	s.wantKind(create(func(*exceptions.Grant) {}), problem.Conflict, "too_many_grants")
	s.must(create(func(g *exceptions.Grant) { g.Key = nil }))
	s.must(create(func(g *exceptions.Grant) { g.Key = map[string]string{"user": "u2"} }))
	s.must(create(func(g *exceptions.Grant) { g.Limit = "day" }))
	s.must(create(func(g *exceptions.Grant) { g.Policy = "other" }))
}
