package accounts_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// A house is a database with the People of one node on it, with its own clock.
type house struct {
	*accounts.People
	t       *testing.T
	store   *store.Store
	limiter enforcement.Limiter
	clock   *clock
	hashes  *atomic.Int64
	tenant  tenants.Tenant // one that exists
}

type clock struct{ at atomic.Int64 } // microseconds since the epoch

func (c *clock) now() time.Time          { return time.UnixMicro(c.at.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.at.Add(d.Microseconds()) }

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, clock: &clock{}}
	h.clock.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	var err error
	h.store, err = store.Open(t.Context(), store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Now: h.clock.now})
	h.must(err)
	t.Cleanup(func() {
		if err := h.store.Close(); err != nil {
			t.Error(err)
		}
	})
	h.must(h.store.Migrate(t.Context()))
	h.tenant, err = tenants.NewService(h.store, tenants.Config{Now: h.clock.now}).CreateTenant(t.Context(), "acme", tenants.Document{Name: "Acme"})
	h.must(err)
	h.limiter = inprocess.New(inprocess.Config{Now: h.clock.at.Load})
	h.People, h.hashes = h.node(h.limiter, nil)
	return h
}

// node is another node's People on the same database.
func (h *house) node(limiter, local enforcement.Limiter) (*accounts.People, *atomic.Int64) {
	h.t.Helper()
	p, err := accounts.NewPeople(h.store, accounts.PeopleConfig{Limiter: limiter, Local: local, Now: h.clock.now})
	h.must(err)
	return p, accounts.CountHashes(p)
}

func (h *house) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// owner sets the house up.
func (h *house) owner() accounts.User {
	h.t.Helper()
	token, err := h.SetupLink(h.t.Context())
	h.must(err)
	u, err := h.SetUp(h.t.Context(), token, accounts.NewPerson{Email: "olga@example.com", Name: "Olga", Password: goodPassword})
	h.must(err)
	return u
}

// as is a context in which a user acts.
func (h *house) as(u accounts.User) context.Context {
	return audit.With(h.t.Context(), u.Actor(), audit.Origin{RequestID: "r1", Address: "192.0.2.1"})
}

// join has somebody invited by the owner, and accept.
func (h *house) join(owner accounts.User, tenantID, email string, role accounts.Role) accounts.User {
	h.t.Helper()
	_, token, err := h.Invite(h.as(owner), owner.Principal(), tenantID, email, role)
	h.must(err)
	u, err := h.Accept(h.t.Context(), token, accounts.NewPerson{Name: "Somebody New", Password: goodPassword})
	h.must(err)
	return u
}

func (h *house) signIn(email string) (string, accounts.Session, accounts.User) {
	h.t.Helper()
	token, s, u, err := h.SignIn(h.t.Context(), email, goodPassword, "192.0.2.1", "Browser/1")
	h.must(err)
	return token, s, u
}

// lines gives the actions of the log, newest first.
func (h *house) lines() []audit.Entry {
	h.t.Helper()
	log, err := h.store.AuditEntries(h.t.Context(), audit.Filter{Limit: 500})
	h.must(err)
	return log
}

func (h *house) kind(err error, kind problem.Kind, code string) {
	h.t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != kind || p.Code != code {
		h.t.Errorf("%v, want %v with code %q", err, kind, code)
	}
}

func (h *house) field(err error, pointer string) {
	h.t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || len(p.Fields) == 0 || p.Fields[0].Pointer != pointer {
		h.t.Errorf("%v, want a fault at %s", err, pointer)
	}
}

func TestFirstRun(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	ctx := t.Context()
	token, err := h.SetupLink(ctx)
	h.must(err)
	second, err := h.SetupLink(ctx) // another start
	h.must(err)
	h.must(h.ReadySetup(ctx, token))
	_, err = h.SetUp(ctx, "made-up", accounts.NewPerson{Email: "olga@example.com", Name: "Olga", Password: goodPassword})
	h.kind(err, problem.NotFound, "")
	_, err = h.Invitation(ctx, token)
	h.kind(err, problem.NotFound, "")
	_, err = h.Accept(ctx, token, accounts.NewPerson{Email: "olga@example.com", Name: "Olga", Password: goodPassword})
	h.kind(err, problem.NotFound, "")
	_, err = h.SetUp(ctx, token, accounts.NewPerson{Email: "olga", Name: "", Password: "short"})
	var p *problem.Problem
	if !errors.As(err, &p) || len(p.Fields) != 3 {
		t.Errorf("%v, want three faults", err)
	}
	u, err := h.SetUp(ctx, token, accounts.NewPerson{Email: "Olga@example.com", Name: "Olga", Password: goodPassword})
	h.must(err)
	if u.Role != accounts.Owner || u.TenantID != "" || u.Email != "Olga@example.com" {
		t.Errorf("first owner %+v", u)
	}
	for _, token := range []string{token, second} {
		h.kind(h.ReadySetup(ctx, token), problem.Conflict, "already_set_up")
		_, err = h.SetUp(ctx, token, accounts.NewPerson{Email: "eve@example.com", Name: "Eve", Password: goodPassword})
		h.kind(err, problem.Conflict, "already_set_up")
	}
	if token, err := h.SetupLink(ctx); token != "" || err != nil {
		t.Errorf("a set-up link of a house that is set up: %q, %v", token, err)
	}
	if _, made, err := h.FirstOwner(ctx, "eve@example.com", goodPassword); made || err != nil {
		t.Errorf("a second first owner: %v, %v", made, err)
	}
	if open, err := h.Invitations(ctx, u.Principal(), ""); len(open) != 0 || err != nil {
		t.Errorf("set-up links are listed: %+v, %v", open, err)
	}
	if e := h.lines()[0]; e.Action != "user.set_up" || e.Actor != u.Actor() || e.Object != u.ID {
		t.Errorf("line %+v", e)
	}
}

func TestSetUpLinkEnds(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	token, err := h.SetupLink(t.Context())
	h.must(err)
	h.clock.advance(accounts.SetupLife)
	h.kind(h.ReadySetup(t.Context(), token), problem.NotFound, "")
}

func TestFirstOwnerForAutomation(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	_, _, err := h.FirstOwner(t.Context(), "olga@example.com", "password1234")
	h.field(err, "/password")
	u, made, err := h.FirstOwner(t.Context(), "olga@example.com", goodPassword)
	if err != nil || !made || u.Role != accounts.Owner {
		t.Fatalf("%+v, %v, %v", u, made, err)
	}
	h.signIn("olga@example.com")
}

// Concurrent set-ups, by links and by automation, create one owner.
func TestOneOfManySetUpsIsFirst(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	link, err := h.SetupLink(t.Context())
	h.must(err)
	other, err := h.SetupLink(t.Context())
	h.must(err)
	var made atomic.Int64
	var wg sync.WaitGroup
	for i, token := range []string{link, link, other, other, "", ""} {
		wg.Go(func() {
			email := string(rune('a'+i)) + "@example.com"
			if token == "" {
				if _, is, err := h.FirstOwner(t.Context(), email, goodPassword); err != nil {
					t.Error(err)
				} else if is {
					made.Add(1)
				}
				return
			}
			_, err := h.SetUp(t.Context(), token, accounts.NewPerson{Email: email, Name: "Olga", Password: goodPassword})
			if err == nil {
				made.Add(1)
			} else if !problem.Is(err, problem.Conflict) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if all, err := h.store.Users(t.Context(), accounts.UserFilter{Limit: 10}); made.Load() != 1 || len(all) != 1 || err != nil {
		t.Errorf("%d set-ups, %d users, %v", made.Load(), len(all), err)
	}
}
