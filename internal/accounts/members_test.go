package accounts_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/tenants"
)

func TestInvitations(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ctx, by := h.as(owner), owner.Principal()
	_, _, err := h.Invite(ctx, by, "", "no address", accounts.Viewer)
	h.field(err, "/email")
	for tenant, role := range map[string]accounts.Role{"": accounts.TenantAdmin, h.tenant.ID: accounts.Owner} {
		_, _, err = h.Invite(ctx, by, tenant, "ann@example.com", role)
		h.field(err, "/role")
	}
	_, _, err = h.Invite(ctx, by, "", "OLGA@example.com", accounts.Viewer)
	h.kind(err, problem.Conflict, "email_taken")
	_, _, err = h.Invite(ctx, by, "0190f5c4-7e1a-7b3c-8d2e-0123456789ab", "ann@example.com", accounts.TenantViewer)
	h.kind(err, problem.NotFound, "")

	i, token, err := h.Invite(ctx, by, h.tenant.ID, "ann@example.com", accounts.TenantAdmin)
	h.must(err)
	if e := h.lines()[0]; e.Action != "user.invite" || e.TenantID != h.tenant.ID || e.Actor != owner.Actor() {
		t.Errorf("line %+v", e)
	}
	if found, err := h.Invitation(t.Context(), token); err != nil || found.Email != "ann@example.com" || found.ID != i.ID {
		t.Errorf("%+v, %v", found, err)
	}
	_, err = h.Accept(t.Context(), token, accounts.NewPerson{Name: "Ann", Password: "ann@example.com!"})
	h.field(err, "/password")
	// Nobody chooses address, role or tenant.
	ann, err := h.Accept(t.Context(), token, accounts.NewPerson{Email: "eve@example.com", Name: "Ann", Password: goodPassword})
	if err != nil || ann.Email != "ann@example.com" || ann.Role != accounts.TenantAdmin || ann.TenantID != h.tenant.ID {
		t.Fatalf("%+v, %v", ann, err)
	}
	if e := h.lines()[0]; e.Action != "user.create" || e.Actor != ann.Actor() || e.TenantID != h.tenant.ID {
		t.Errorf("line %+v", e)
	}
	_, err = h.Accept(t.Context(), token, accounts.NewPerson{Name: "Ann", Password: goodPassword})
	h.kind(err, problem.NotFound, "")

	i, token, err = h.Invite(ctx, by, h.tenant.ID, "bob@example.com", accounts.TenantViewer)
	h.must(err)
	h.kind(h.Withdraw(ctx, by, "", i.ID), problem.NotFound, "")
	h.must(h.Withdraw(ctx, by, h.tenant.ID, i.ID))
	if e := h.lines()[0]; e.Action != "invitation.withdraw" {
		t.Errorf("line %+v", e)
	}
	_, err = h.Invitation(t.Context(), token)
	h.kind(err, problem.NotFound, "")

	_, token, err = h.Invite(ctx, by, h.tenant.ID, "bob@example.com", accounts.TenantViewer)
	h.must(err)
	if open, err := h.Invitations(ctx, by, h.tenant.ID); len(open) != 1 || err != nil {
		t.Errorf("open %+v, %v", open, err)
	}
	h.clock.advance(accounts.InvitationLife)
	_, err = h.Accept(t.Context(), token, accounts.NewPerson{Name: "Bob", Password: goodPassword})
	h.kind(err, problem.NotFound, "")
	if open, err := h.Invitations(ctx, by, h.tenant.ID); len(open) != 0 || err != nil {
		t.Errorf("open %+v, %v", open, err)
	}
}

// A tenant has a bounded number of people. Open invitations count, and the
// operator's people do not.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ctx, by := h.as(owner), owner.Principal()
	for i := range accounts.MaxMembers - 1 {
		u := accounts.User{ID: audit.NewID(), Email: fmt.Sprintf("m%d@example.com", i), Name: "M", Role: accounts.TenantViewer, TenantID: h.tenant.ID, CreatedAt: h.clock.now(), UpdatedAt: h.clock.now()}
		_, err := h.store.CreateUser(ctx, u, false, audit.Entry{ID: audit.NewID(), Action: "user.create", TenantID: h.tenant.ID, Actor: owner.Actor(), At: h.clock.now()})
		h.must(err)
	}
	_, _, err := h.Invite(ctx, by, h.tenant.ID, "last@example.com", accounts.TenantViewer)
	h.must(err)
	_, _, err = h.Invite(ctx, by, h.tenant.ID, "more@example.com", accounts.TenantViewer)
	h.kind(err, problem.Conflict, "too_many_members")
	_, _, err = h.Invite(ctx, by, "", "operator@example.com", accounts.Viewer)
	h.must(err)
}

func TestOneOfManyAccepts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	_, token, err := h.Invite(h.as(owner), owner.Principal(), "", "ann@example.com", accounts.Viewer)
	h.must(err)
	_, second, err := h.Invite(h.as(owner), owner.Principal(), "", "Ann@example.com", accounts.Editor)
	h.must(err)
	var made atomic.Int64
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			link := token
			if i%4 == 3 {
				link = second
			}
			_, err := h.Accept(t.Context(), link, accounts.NewPerson{Name: "Ann", Password: goodPassword})
			if err == nil {
				made.Add(1)
			} else if !problem.Is(err, problem.NotFound) && !problem.Is(err, problem.Conflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if all, err := h.store.Users(t.Context(), accounts.UserFilter{Limit: 10}); made.Load() != 1 || len(all) != 2 || err != nil {
		t.Errorf("%d accepted, %d users, %v", made.Load(), len(all), err)
	}
}

// A person who was removed, disabled, or demoted cannot return by an earlier invitation.
func TestInvitationsAreWorthWhatTheirMakerMay(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	for name, end := range map[string]func(u accounts.User) error{
		"removed": func(u accounts.User) error { return h.Remove(h.as(owner), owner.Principal(), "", u.ID) },
		"demoted": func(u accounts.User) error {
			_, err := h.ChangeRole(h.as(owner), owner.Principal(), "", u.ID, accounts.Viewer)
			return err
		},
		"disabled": func(u accounts.User) error {
			_, err := h.Disable(h.as(owner), owner.Principal(), "", u.ID)
			return err
		},
	} {
		maker := h.join(owner, "", name+"@example.com", accounts.Owner)
		_, token, err := h.Invite(h.as(maker), maker.Principal(), "", "back-"+name+"@example.com", accounts.Owner)
		h.must(err)
		_, err = h.Invitation(t.Context(), token)
		h.must(err)
		h.must(end(maker))
		_, err = h.Accept(t.Context(), token, accounts.NewPerson{Name: "Back", Password: goodPassword})
		h.kind(err, problem.NotFound, "")
		who := accounts.Identity{Issuer: "https://id.example", Subject: name, Email: "back-" + name + "@example.com", Verified: true}
		_, _, _, err = h.SignInWith(t.Context(), who, "", "")
		h.kind(err, problem.Unauthenticated, "unknown_person")
	}
}

// A key that is revoked leaves no way in behind either.
func TestLinksEndWithTheirKey(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	all := []tenants.Scope{tenants.ScopeRead, tenants.ScopeManage, tenants.ScopeCheck}
	service := tenants.NewService(h.store, tenants.Config{})
	_, _, err := service.CreateOperatorKey(h.as(owner), tenants.NewKey{Name: "stays", Scopes: all})
	h.must(err)
	operators, _, err := service.CreateOperatorKey(h.as(owner), tenants.NewKey{Name: "operator's", Scopes: all})
	h.must(err)
	members, _, err := service.CreateKey(h.as(owner), h.tenant.ID, tenants.NewKey{Name: "tenant's", Scopes: all})
	h.must(err)
	_, kept, err := h.Invite(h.as(owner), owner.Principal(), h.tenant.ID, "kept@example.com", accounts.TenantViewer)
	h.must(err)

	for _, c := range []struct {
		by     accounts.Principal
		tenant string
		role   accounts.Role
		revoke func() error
	}{
		{accounts.Principal{Kind: "operator_key", ID: operators.ID, Scopes: all}, "", accounts.Owner, func() error {
			_, err := service.RevokeOperatorKey(h.as(owner), operators.ID)
			return err
		}},
		{accounts.Principal{Kind: "tenant_key", ID: members.ID, Scopes: all, TenantID: h.tenant.ID}, h.tenant.ID, accounts.TenantAdmin, func() error {
			_, err := service.RevokeKey(h.as(owner), h.tenant.ID, members.ID)
			return err
		}},
	} {
		ctx := audit.With(t.Context(), audit.Actor{Kind: c.by.Kind, ID: c.by.ID}, audit.Origin{})
		_, token, err := h.Invite(ctx, c.by, c.tenant, c.by.Kind+"@example.com", c.role)
		h.must(err)
		_, err = h.Invitation(t.Context(), token)
		h.must(err)
		h.must(c.revoke())
		_, err = h.Invitation(t.Context(), token)
		h.kind(err, problem.NotFound, "")
	}
	_, err = h.Invitation(t.Context(), kept)
	h.must(err)
}

// A key invites only people whose role has no scope that the key lacks, and gives no such role.
func TestKeysGiveNoMoreThanTheyHave(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	viewer := h.join(owner, "", "viewer@example.com", accounts.Viewer)
	for i, c := range []struct {
		scopes []tenants.Scope
		may    map[accounts.Role]bool
	}{
		{[]tenants.Scope{tenants.ScopeManage}, nil},
		{[]tenants.Scope{tenants.ScopeManage, tenants.ScopeCheck}, nil},
		{[]tenants.Scope{tenants.ScopeManage, tenants.ScopeRead}, map[accounts.Role]bool{accounts.Viewer: true, accounts.TenantViewer: true}},
		{[]tenants.Scope{tenants.ScopeManage, tenants.ScopeRead, tenants.ScopeCheck}, map[accounts.Role]bool{
			accounts.Owner: true, accounts.Editor: true, accounts.Viewer: true, accounts.TenantAdmin: true, accounts.TenantViewer: true,
		}},
	} {
		by := accounts.Principal{Kind: "operator_key", ID: "k", Scopes: c.scopes}
		for _, role := range accounts.Roles() {
			tenant := ""
			if role.Tenant() {
				tenant = h.tenant.ID
			}
			_, _, err := h.Invite(t.Context(), by, tenant, fmt.Sprintf("%s%d@example.com", role, i), role)
			if may := err == nil; may != c.may[role] {
				t.Errorf("a key with %v invites the role %s: %v", c.scopes, role, err)
			}
			if err != nil {
				h.kind(err, problem.Forbidden, "")
			}
			if !role.Operator() {
				continue
			}
			u, err := h.User(t.Context(), owner.Principal(), "", viewer.ID)
			h.must(err)
			_, err = h.ChangeAccess(t.Context(), by, "", u.ID, role, false, u.Revision)
			if may := err == nil; may != (c.may[role] || role == u.Role) {
				t.Errorf("a key with %v gives the role %s: %v", c.scopes, role, err)
			}
		}
	}
}

func TestNewLinkSetsAPassword(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ann := h.join(owner, h.tenant.ID, "ann@example.com", accounts.TenantAdmin)
	session, _, _ := h.signIn("ann@example.com")
	_, _, err := h.NewLink(h.as(owner), owner.Principal(), "", owner.ID)
	h.kind(err, problem.Forbidden, "own_account")
	_, token, err := h.NewLink(h.as(owner), owner.Principal(), h.tenant.ID, ann.ID)
	h.must(err)
	_, err = h.Accept(t.Context(), token, accounts.NewPerson{Password: "short"})
	h.field(err, "/password")
	u, err := h.Accept(t.Context(), token, accounts.NewPerson{Name: "Eve", Email: "eve@example.com", Password: newPassword})
	if err != nil || u.ID != ann.ID || u.Name != ann.Name || u.Email != ann.Email || u.Role != ann.Role {
		t.Errorf("%+v, %v", u, err)
	}
	_, _, err = h.Session(t.Context(), session)
	h.kind(err, problem.Unauthenticated, "")
	if _, _, _, err := h.SignIn(t.Context(), "ann@example.com", newPassword, "192.0.2.1", ""); err != nil {
		t.Error(err)
	}
	_, err = h.Disable(h.as(owner), owner.Principal(), h.tenant.ID, ann.ID)
	h.must(err)
	_, _, err = h.NewLink(h.as(owner), owner.Principal(), h.tenant.ID, ann.ID)
	h.kind(err, problem.Conflict, "disabled")
}

func TestChangesEndSessions(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ctx, by := h.as(owner), owner.Principal()
	vera := h.join(owner, "", "vera@example.com", accounts.Viewer)
	for name, change := range map[string]func() error{
		"role":     func() error { _, err := h.ChangeRole(ctx, by, "", vera.ID, accounts.Editor); return err },
		"disabled": func() error { _, err := h.Disable(ctx, by, "", vera.ID); return err },
	} {
		token, _, _ := h.signIn("vera@example.com")
		h.must(change())
		if _, _, err := h.Session(t.Context(), token); !problem.Is(err, problem.Unauthenticated) {
			t.Errorf("%s: %v, want that the session has ended", name, err)
		}
		_, err := h.Enable(ctx, by, "", vera.ID)
		h.must(err)
	}
	token, s, u := h.signIn("vera@example.com")
	h.must(h.Remove(ctx, by, "", vera.ID))
	_, _, err := h.Session(t.Context(), token)
	h.kind(err, problem.Unauthenticated, "")
	h.must(h.SignOut(t.Context(), u, s))
	if e := h.lines()[0]; e.Action != "user.remove" || e.Object != vera.ID || e.After != nil {
		t.Errorf("line %+v", e)
	}
	h.kind(h.Remove(ctx, by, "", vera.ID), problem.NotFound, "")
}

func TestNobodyChangesThemselves(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ctx, by := h.as(owner), owner.Principal()
	h.join(owner, "", "second@example.com", accounts.Owner)
	_, err := h.ChangeRole(ctx, by, "", owner.ID, accounts.Viewer)
	h.kind(err, problem.Forbidden, "own_account")
	_, err = h.Disable(ctx, by, "", owner.ID)
	h.kind(err, problem.Forbidden, "own_account")
	h.kind(h.Remove(ctx, by, "", owner.ID), problem.Forbidden, "own_account")
}

func TestTheLastOwnerStays(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	key := accounts.Principal{Kind: "operator_key", ID: "k", Scopes: []tenants.Scope{tenants.ScopeManage}}
	for _, by := range []accounts.Principal{key, accounts.CommandPrincipal("user")} {
		_, err := h.ChangeRole(t.Context(), by, "", owner.ID, accounts.Viewer)
		h.kind(err, problem.Conflict, "last_owner")
		_, err = h.Disable(t.Context(), by, "", owner.ID)
		h.kind(err, problem.Conflict, "last_owner")
		h.kind(h.Remove(t.Context(), by, "", owner.ID), problem.Conflict, "last_owner")
	}
}

// Every kind of caller with every action on other people: people of the operator, of the
// caller's tenant, and of another tenant.
func TestWhoMayConcerningPeople(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	other, err := tenants.NewService(h.store, tenants.Config{Now: h.clock.now}).CreateTenant(t.Context(), "other", tenants.Document{Name: "Other"})
	h.must(err)
	place := map[string]string{"operator": "", "own": h.tenant.ID, "other": other.ID, "none": "0190f5c4-7e1a-7b3c-8d2e-0123456789ab"}
	users := map[string]accounts.User{
		"operator": h.join(owner, "", "op@example.com", accounts.Viewer),
		"own":      h.join(owner, h.tenant.ID, "own@example.com", accounts.TenantViewer),
		"other":    h.join(owner, other.ID, "other@example.com", accounts.TenantViewer),
		"none":     {ID: "0190f5c4-7e1a-7b3c-8d2e-0123456789ac"},
	}
	key := func(tenant string, s ...tenants.Scope) accounts.Principal {
		return accounts.Principal{Kind: "tenant_key", ID: "k", Scopes: s, TenantID: tenant}
	}
	person := func(r accounts.Role, tenant string) accounts.Principal {
		return accounts.Principal{Kind: "user", ID: "u", Role: r, TenantID: tenant}
	}
	const fine, forbidden, hidden, unknown = problem.Internal, problem.Forbidden, problem.NotFound, problem.Unauthenticated
	for _, c := range []struct {
		name        string
		by          accounts.Principal
		read, write [4]problem.Kind // operator, own, other, none
	}{
		{"owner", person(accounts.Owner, ""), [4]problem.Kind{fine, fine, fine, hidden}, [4]problem.Kind{fine, fine, fine, hidden}},
		{"editor", person(accounts.Editor, ""), [4]problem.Kind{fine, fine, fine, hidden}, [4]problem.Kind{forbidden, fine, fine, hidden}},
		{"viewer", person(accounts.Viewer, ""), [4]problem.Kind{fine, fine, fine, hidden}, [4]problem.Kind{forbidden, forbidden, forbidden, forbidden}},
		{"admin", person(accounts.TenantAdmin, h.tenant.ID), [4]problem.Kind{forbidden, fine, hidden, hidden}, [4]problem.Kind{forbidden, fine, hidden, hidden}},
		{"member", person(accounts.TenantViewer, h.tenant.ID), [4]problem.Kind{forbidden, fine, hidden, hidden}, [4]problem.Kind{forbidden, forbidden, hidden, hidden}},
		{"tenant key", key(h.tenant.ID, tenants.ScopeManage), [4]problem.Kind{forbidden, fine, hidden, hidden}, [4]problem.Kind{forbidden, fine, hidden, hidden}},
		{"key that reads", key(h.tenant.ID, tenants.ScopeRead), [4]problem.Kind{forbidden, fine, hidden, hidden}, [4]problem.Kind{forbidden, forbidden, hidden, hidden}},
		{"key that checks", key(h.tenant.ID, tenants.ScopeCheck), [4]problem.Kind{forbidden, forbidden, hidden, hidden}, [4]problem.Kind{forbidden, forbidden, hidden, hidden}},
		{"command", accounts.CommandPrincipal("user"), [4]problem.Kind{fine, fine, fine, hidden}, [4]problem.Kind{fine, fine, fine, hidden}},
		{"nobody", accounts.Principal{}, [4]problem.Kind{unknown, unknown, unknown, unknown}, [4]problem.Kind{unknown, unknown, unknown, unknown}},
		{"a role out of place", person(accounts.Owner, h.tenant.ID), [4]problem.Kind{forbidden, forbidden, hidden, hidden}, [4]problem.Kind{forbidden, forbidden, hidden, hidden}},
	} {
		for i, where := range []string{"operator", "own", "other", "none"} {
			tenant, u := place[where], users[where]
			role := accounts.TenantViewer
			if where == "operator" {
				role = accounts.Viewer
			}
			_, read := h.User(t.Context(), c.by, tenant, u.ID)
			_, changed := h.ChangeRole(t.Context(), c.by, tenant, u.ID, role) // what it is already
			_, _, linked := h.NewLink(t.Context(), c.by, tenant, u.ID)
			_, enabled := h.Enable(t.Context(), c.by, tenant, u.ID)
			for what, err := range map[string]error{"read": read, "role": changed, "link": linked, "enable": enabled} {
				want := c.write[i]
				if what == "read" {
					want = c.read[i]
				}
				if problem.Of(err) != want || (want == fine) != (err == nil) {
					t.Errorf("%s, %s of %s: %v, want %v", c.name, what, where, err, want)
				}
			}
			// Another tenant and none at all: word for word the same.
			if where == "other" && c.by.TenantID != "" {
				_, none := h.User(t.Context(), c.by, place["none"], users["none"].ID)
				if read == nil || none == nil || read.Error() != none.Error() {
					t.Errorf("%s tells another tenant's person from none: %v, %v", c.name, read, none)
				}
			}
		}
	}
	// A user is found only where they belong, also by who may see both places.
	_, err = h.User(t.Context(), owner.Principal(), h.tenant.ID, users["other"].ID)
	h.kind(err, problem.NotFound, "")
	if list, err := h.Users(t.Context(), person(accounts.TenantViewer, h.tenant.ID), h.tenant.ID, accounts.UserFilter{Operator: true}); err != nil || len(list) != 1 || list[0].ID != users["own"].ID {
		t.Errorf("a member sees %+v, %v", list, err)
	}
}

// The answer to an admin of a tenant about an address does not depend on whether the
// address has an account elsewhere.
func TestInvitingTellsNothingOfOtherTenants(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	admin := h.join(owner, h.tenant.ID, "ann@example.com", accounts.TenantAdmin)
	for _, email := range []string{"olga@example.com", "nobody@example.com"} {
		before, lines := h.hashes.Load(), len(h.lines())
		_, token, err := h.Invite(h.as(admin), admin.Principal(), h.tenant.ID, email, accounts.TenantViewer)
		if err != nil {
			t.Errorf("%s: %v", email, err)
		}
		if _, err = h.Accept(t.Context(), token, accounts.NewPerson{Name: "Eve", Password: goodPassword}); err != nil {
			t.Errorf("%s joins: %v", email, err)
		}
		if _, err = h.Invitation(t.Context(), token); !problem.Is(err, problem.NotFound) {
			t.Errorf("the link of %s works again: %v", email, err)
		}
		if hashes, wrote := h.hashes.Load()-before, len(h.lines())-lines; hashes != 1 || wrote != 2 {
			t.Errorf("%s: %d hashes and %d lines, want 1 and 2", email, hashes, wrote)
		}
	}
	if u, err := h.store.UserByEmail(t.Context(), "olga@example.com"); err != nil || u.ID != owner.ID || u.TenantID != "" {
		t.Errorf("%+v, %v", u, err)
	}
	_, _, err := h.Invite(h.as(admin), admin.Principal(), h.tenant.ID, "ANN@example.com", accounts.TenantViewer)
	h.kind(err, problem.Conflict, "email_taken")
}

// No password, hash, token or cookie stands anywhere in the log.
func TestNoSecretsInTheLog(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	secrets := []string{goodPassword, newPassword, "argon2id"}
	setup, err := h.SetupLink(t.Context())
	h.must(err)
	_, err = h.SetUp(t.Context(), setup, accounts.NewPerson{Email: "olga@example.com", Name: "Olga", Password: goodPassword})
	h.must(err)
	cookie, s, owner := h.signIn("olga@example.com")
	_, link, err := h.Invite(h.as(owner), owner.Principal(), h.tenant.ID, "ann@example.com", accounts.TenantAdmin)
	h.must(err)
	ann, err := h.Accept(t.Context(), link, accounts.NewPerson{Name: "Ann", Password: goodPassword})
	h.must(err)
	_, again, err := h.NewLink(h.as(owner), owner.Principal(), h.tenant.ID, ann.ID)
	h.must(err)
	_, err = h.Accept(t.Context(), again, accounts.NewPerson{Password: newPassword})
	h.must(err)
	_, _, _, err = h.SignIn(t.Context(), "ann@example.com", goodPassword, "192.0.2.1", "")
	h.kind(err, problem.Unauthenticated, "sign_in_failed")
	next, err := h.ChangePassword(h.as(owner), owner, s, goodPassword, newPassword)
	h.must(err)
	secrets = append(secrets, setup, cookie, link, again, next)
	if len(h.lines()) < 9 {
		t.Errorf("only %d lines", len(h.lines()))
	}
	for _, e := range h.lines() {
		text := e.Object + e.ObjectName + e.Actor.Name + string(e.Before) + string(e.After)
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %q", e.Action, secret)
			}
		}
	}
}
