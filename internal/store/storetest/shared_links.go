package storetest

import (
	"time"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/sharing"
)

var sharingTests = []struct {
	name string
	run  func(*suite)
}{
	{"shared links are made, read, opened and deleted", testSharedLinks},
	{"shared links of one owner are nothing to another", testSharedLinkOwners},
	{"an owner has a maximum of shared links", testSharedLinkBound},
}

// sharedLink creates a link of an owner that is valid for an hour.
func (s *suite) sharedLink(tenantID string, content []byte) sharing.Link {
	s.Helper()
	at := s.Clock.stored()
	l, err := s.Store.CreateSharedLink(s.ctx, sharing.Link{
		ID: audit.NewID(), TenantID: tenantID, Hash: s.hash(), CreatedAt: at,
		CreatedBy: audit.Actor{Kind: "user", ID: audit.NewID(), Name: "Ann"},
		Document: sharing.Document{
			Name: "Lobby", Kind: sharing.Display, Page: sharing.Overview, Query: "range=6h", Zone: "Europe/Berlin",
			ExpiresAt: at.Add(time.Hour).Truncate(time.Second),
		},
	}, content, entry("shared_link.create"))
	s.must(err)
	return l
}

func testSharedLinks(s *suite) {
	wall, copied := s.sharedLink("", nil), s.sharedLink("", []byte("a copy"))
	list, err := s.Other.SharedLinks(s.ctx, "", s.Clock.Now(), sharing.Filter{})
	s.must(err)
	s.same("links of the operator, newest first", list, []sharing.Link{copied, wall})
	list, err = s.Store.SharedLinks(s.ctx, "", s.Clock.Now(), sharing.Filter{After: copied.ID, Limit: 1})
	s.must(err)
	s.same("the second page", list, []sharing.Link{wall})
	got, err := s.Store.SharedLink(s.ctx, "", wall.ID)
	s.must(err)
	s.same("one link, which was not opened", got, wall)

	lines := len(s.lines(audit.Filter{Limit: 100}))
	opened, content, err := s.Store.OpenSharedLink(s.ctx, copied.Hash, s.Clock.Now())
	s.must(err)
	copied.LastUsedAt = s.Clock.stored()
	s.same("an opened link", opened, copied)
	s.same("its content", string(content), "a copy")
	first := s.Clock.stored()
	s.Clock.Add(sharing.SeenGranularity)
	_, _, err = s.Store.OpenSharedLink(s.ctx, copied.Hash, s.Clock.Now())
	s.must(err)
	got, err = s.Other.SharedLink(s.ctx, "", copied.ID)
	s.must(err)
	s.same("the last use, not stored again within a minute", got.LastUsedAt, first)
	s.Clock.Add(time.Second)
	_, content, err = s.Store.OpenSharedLink(s.ctx, copied.Hash, s.Clock.Now())
	s.must(err)
	s.same("its content, opened again", string(content), "a copy")
	got, err = s.Other.SharedLink(s.ctx, "", copied.ID)
	s.must(err)
	s.same("the last use, stored after a minute", got.LastUsedAt, s.Clock.stored())
	if n := len(s.lines(audit.Filter{Limit: 100})); n != lines {
		s.Errorf("opening a link wrote %d audit lines", n-lines)
	}

	s.must(s.Store.DeleteSharedLink(s.ctx, "", copied.ID, entry("shared_link.revoke")))
	_, _, err = s.Other.OpenSharedLink(s.ctx, copied.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	s.wantKind(s.Store.DeleteSharedLink(s.ctx, "", copied.ID, entry("x")), problem.NotFound, "")

	s.Clock.Add(time.Hour)
	_, _, err = s.Store.OpenSharedLink(s.ctx, wall.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
	list, err = s.Store.SharedLinks(s.ctx, "", s.Clock.Now(), sharing.Filter{})
	s.must(err)
	s.same("an expired link is not listed", list, []sharing.Link(nil))
	_, err = s.Store.SharedLink(s.ctx, "", wall.ID)
	s.must(err)
	s.must(s.Store.EndOverSessions(s.ctx, s.Clock.Now()))
	_, err = s.Store.SharedLink(s.ctx, "", wall.ID)
	s.wantKind(err, problem.NotFound, "")
}

func testSharedLinkOwners(s *suite) {
	acme := s.tenant("acme", "")
	own, operators := s.sharedLink(acme.ID, nil), s.sharedLink("", nil)
	for owner, other := range map[string]string{"": own.ID, acme.ID: operators.ID} {
		_, err := s.Store.SharedLink(s.ctx, owner, other)
		s.wantKind(err, problem.NotFound, "")
		s.wantKind(s.Store.DeleteSharedLink(s.ctx, owner, other, entry("x")), problem.NotFound, "")
	}
	list, err := s.Store.SharedLinks(s.ctx, acme.ID, s.Clock.Now(), sharing.Filter{})
	s.must(err)
	s.same("links of the tenant", list, []sharing.Link{own})
	s.must(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision, entry("tenant.delete")))
	_, _, err = s.Store.OpenSharedLink(s.ctx, own.Hash, s.Clock.Now())
	s.wantKind(err, problem.NotFound, "")
}

func testSharedLinkBound(s *suite) {
	acme := s.tenant("acme", "")
	for range sharing.MaxLinks {
		s.sharedLink(acme.ID, nil)
	}
	_, err := s.Store.CreateSharedLink(s.ctx, sharing.Link{ID: audit.NewID(), TenantID: acme.ID, Hash: s.hash()}, nil, entry("x"))
	s.wantKind(err, problem.Conflict, "too_many_shared_links")
	s.sharedLink("", nil)
}
