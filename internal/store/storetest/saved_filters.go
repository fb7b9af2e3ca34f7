package storetest

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/savedfilters"
)

var savedFilterTests = []struct {
	name string
	run  func(*suite)
}{
	{"saved filters are made, read, changed and deleted", testSavedFilters},
	{"a person and a page have a maximum of saved filters", testSavedFilterBounds},
}

// savedFilter makes a filter of a person.
func (s *suite) savedFilter(tenantID, userID, name string, shared bool) savedfilters.Filter {
	s.Helper()
	f := savedfilters.Filter{
		ID: audit.NewID(), TenantID: tenantID, OwnerID: userID, CreatedAt: s.Clock.stored(),
		Document: savedfilters.Document{Name: name, Page: "denials", Query: "reason=limited", Shared: shared},
	}
	s.must(s.Store.CreateSavedFilter(s.ctx, f, nil))
	return f
}

func testSavedFilters(s *suite) {
	acme := s.tenant("acme", "")
	ann, bob := s.user(accounts.Owner, ""), s.user(accounts.Editor, "")
	here := savedfilters.Place{Page: "denials"}
	own, shared := s.savedFilter("", ann.ID, "b", false), s.savedFilter("", ann.ID, "A", true)
	other := s.savedFilter(acme.ID, ann.ID, "c", true)
	list, err := s.Other.SavedFilters(s.ctx, here, ann.ID)
	s.must(err)
	s.same("filters of the owner, by name", list, []savedfilters.Filter{shared, own})
	list, err = s.Store.SavedFilters(s.ctx, here, bob.ID)
	s.must(err)
	s.same("filters of another person", list, []savedfilters.Filter{shared})
	list, err = s.Store.SavedFilters(s.ctx, savedfilters.Place{Page: "audit"}, ann.ID)
	s.must(err)
	s.same("filters of another page", list, []savedfilters.Filter(nil))
	list, err = s.Store.SavedFiltersOf(s.ctx, acme.ID, bob.ID)
	s.must(err)
	s.same("filters of the tenant", list, []savedfilters.Filter{other})
	list, err = s.Store.SavedFiltersOf(s.ctx, "", ann.ID)
	s.must(err)
	s.same("filters of all places", list, []savedfilters.Filter{shared, own, other})

	for _, p := range []savedfilters.Place{{TenantID: acme.ID, Page: "denials"}, {Page: "audit"}} {
		_, err := s.Store.SavedFilter(s.ctx, p, own.ID)
		s.wantKind(err, problem.NotFound, "")
	}
	stranger := own
	stranger.OwnerID = bob.ID
	s.wantKind(s.Store.ChangeSavedFilter(s.ctx, stranger, nil), problem.NotFound, "")
	s.wantKind(s.Store.DeleteSavedFilter(s.ctx, stranger, nil), problem.NotFound, "")
	before, lines := s.revision(), len(s.lines(audit.Filter{Limit: 1000}))
	own.Name, own.Shared = "z", true
	s.must(s.Store.ChangeSavedFilter(s.ctx, own, nil))
	got, err := s.Store.SavedFilter(s.ctx, here, own.ID)
	s.must(err)
	s.same("a changed filter", got, own)
	if s.revision() != before || len(s.lines(audit.Filter{Limit: 1000})) != lines {
		s.Error("a change without an entry raised the revision or left a line")
	}
	e := entry("saved_filter.delete")
	s.must(s.Store.DeleteSavedFilter(s.ctx, own, &e))
	if n := len(s.lines(audit.Filter{Limit: 1000})); n != lines+1 {
		s.Errorf("a deletion with an entry left %d lines", n-lines)
	}
	s.must(s.Store.DeleteTenant(s.ctx, acme.ID, acme.Revision, entry("tenant.delete")))
	list, err = s.Store.SavedFiltersOf(s.ctx, "", ann.ID)
	s.must(err)
	s.same("filters after the tenant is deleted", list, []savedfilters.Filter{shared})
}

func testSavedFilterBounds(s *suite) {
	ann, bob := s.user(accounts.Owner, ""), s.user(accounts.Editor, "")
	for range savedfilters.MaxShared {
		s.savedFilter("", ann.ID, "x", true)
	}
	f := savedfilters.Filter{ID: audit.NewID(), OwnerID: bob.ID, Document: savedfilters.Document{Name: "x", Page: "denials", Shared: true}}
	s.wantKind(s.Store.CreateSavedFilter(s.ctx, f, nil), problem.Conflict, "too_many_saved_filters")
	own := s.savedFilter("", bob.ID, "x", false)
	own.Shared = true
	s.wantKind(s.Store.ChangeSavedFilter(s.ctx, own, nil), problem.Conflict, "too_many_saved_filters")
	for range savedfilters.MaxOwn - 1 {
		s.savedFilter("", bob.ID, "x", false)
	}
	f.Shared = false
	s.wantKind(s.Store.CreateSavedFilter(s.ctx, f, nil), problem.Conflict, "too_many_saved_filters")
	f.OwnerID = audit.NewID()
	s.wantKind(s.Store.CreateSavedFilter(s.ctx, f, nil), problem.NotFound, "")
}
