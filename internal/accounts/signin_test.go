package accounts_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	token, s, u, err := h.SignIn(t.Context(), "  OLGA@Example.com ", goodPassword, "::ffff:192.0.2.1", "Browser\x00/1 "+strings.Repeat("x", 300))
	h.must(err)
	if u.ID != owner.ID || s.Address != "192.0.2.1" || !strings.HasPrefix(s.Agent, `Browser`) || strings.Contains(s.Agent, "\x00") || len(s.Agent) > 210 {
		t.Errorf("signed in %+v as %+v", s, u)
	}
	if !s.ExpiresAt.Equal(h.clock.now().Add(12 * time.Hour)) {
		t.Errorf("the session ends at %v", s.ExpiresAt)
	}
	found, who, err := h.Session(t.Context(), token)
	if err != nil || found.ID != s.ID || who.ID != owner.ID || !who.SignedInAt.Equal(h.clock.now()) {
		t.Errorf("found %+v of %+v, %v", found, who, err)
	}
	again, _, _ := h.signIn("olga@example.com")
	if again == token {
		t.Error("two sign-ins have one cookie")
	}
	if e := h.lines()[1]; e.Action != "session.sign_in" || e.Actor != owner.Actor() || e.Object != owner.ID || strings.Contains(string(e.After), token) {
		t.Errorf("line %+v", e)
	}
}

// An unknown person, a wrong password, a disabled account, an account without a password,
// and an invalid address get the same answer, with the same number of hashes and of lines
// in the log.
func TestFailedSignInsAreAlike(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	disabled := h.join(owner, "", "dora@example.com", accounts.Viewer)
	_, err := h.Disable(h.as(owner), owner.Principal(), "", disabled.ID)
	h.must(err)
	_, _, err = h.Invite(h.as(owner), owner.Principal(), "", "otto@example.com", accounts.Viewer)
	h.must(err)
	identity := accounts.Identity{Issuer: "https://id.example", Subject: "7", Email: "otto@example.com", Verified: true}
	_, _, _, err = h.SignInWith(t.Context(), identity, "192.0.2.9", "")
	h.must(err)

	var first string
	for i, c := range [][2]string{
		{"nobody@example.com", goodPassword},
		{"olga@example.com", "wrong wrong wrong"},
		{"olga@example.com", ""},
		{"dora@example.com", goodPassword},
		{"otto@example.com", goodPassword},
		{goodPassword, goodPassword}, // the password in the wrong field
		{"", ""},
		{"a\x00b@example.com", strings.Repeat("x", 100_000)},
	} {
		before, lines := h.hashes.Load(), len(h.lines())
		token, s, u, err := h.SignIn(t.Context(), c[0], c[1], fmt.Sprintf("198.51.100.%d", i), "Browser/1")
		if first == "" && err != nil {
			first = err.Error()
		}
		h.kind(err, problem.Unauthenticated, "sign_in_failed")
		if err == nil || err.Error() != first || token != "" || s != (accounts.Session{}) || u != (accounts.User{}) {
			t.Errorf("%q: %v, token %q, %+v, %+v", c[0], err, token, s, u)
		}
		if hashes, wrote := h.hashes.Load()-before, len(h.lines())-lines; hashes != 1 || wrote != 1 {
			t.Errorf("%q: %d hashes and %d lines, want 1 and 1", c[0], hashes, wrote)
		}
		e := h.lines()[0]
		if e.Action != "session.sign_in_failed" || e.Actor.ID != "" || strings.ContainsAny(e.ObjectName, "\x00\n") || strings.Contains(e.ObjectName+e.Actor.Name, goodPassword) || strings.Contains(string(e.After), "wrong") {
			t.Errorf("line %+v", e)
		}
	}
	// The operator sees whose account was tried; the log is theirs.
	if e := h.lines()[6]; e.Object != owner.ID || e.ObjectName != "olga@example.com" {
		t.Errorf("line %+v", e)
	}
}

// limited sends concurrent attempts over several nodes. It returns the number of attempts
// that were checked, the number that the limit rejected, and the wait.
func (h *house) limited(nodes []*accounts.People, n int, email func(int) string, address func(int) string) (failed, limited int64, wait time.Duration) {
	var f, l, longest atomic.Int64
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, _, _, err := nodes[i%len(nodes)].SignIn(h.t.Context(), email(i), "wrong wrong wrong", address(i), "")
			var limit *accounts.LimitedError
			switch {
			case errors.As(err, &limit):
				l.Add(1)
				longest.Store(int64(limit.RetryAfter))
			case problem.Is(err, problem.Unauthenticated):
				f.Add(1)
			default:
				h.t.Error(err)
			}
		})
	}
	wg.Wait()
	return f.Load(), l.Load(), time.Duration(longest.Load())
}

func always(s string) func(int) string { return func(int) string { return s } }

func TestFailuresOfAnAccountAreLimited(t *testing.T) {
	t.Parallel()
	for _, email := range []string{"olga@example.com", "nobody@example.com"} {
		h := newHouse(t)
		h.owner()
		other, otherHashes := h.node(h.limiter, nil)
		nodes := []*accounts.People{h.People, other}
		h.hashes.Store(0)
		failed, limited, wait := h.limited(nodes, 12, always(email), func(i int) string { return fmt.Sprintf("198.51.100.%d", i) })
		if failed != 5 || limited != 7 || h.hashes.Load()+otherHashes.Load() != 5 {
			t.Errorf("%s: %d failed, %d limited, %d hashes, want 5, 7 and 5", email, failed, limited, h.hashes.Load()+otherHashes.Load())
		}
		if wait != accounts.FailureWindow {
			t.Errorf("%s: to wait %v, want %v", email, wait, accounts.FailureWindow)
		}
		// The right password waits too, in any spelling of the address; others do not.
		_, _, _, err := other.SignIn(t.Context(), strings.ToUpper(email), goodPassword, "203.0.113.1", "")
		if limit := (*accounts.LimitedError)(nil); !errors.As(err, &limit) {
			t.Errorf("%s: %v, want a limit", email, err)
		}
		if failed, _, _ := h.limited(nodes, 1, always("else@example.com"), always("203.0.113.1")); failed != 1 {
			t.Error("another account is limited too")
		}
		h.clock.advance(accounts.FailureWindow)
		if failed, _, _ := h.limited(nodes, 1, always(email), always("203.0.113.2")); failed != 1 {
			t.Errorf("%s: still limited when the window is over", email)
		}
	}
}

func TestFailuresFromAnAddressAreLimited(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(int) string{
		"IPv4": always("198.51.100.7"), "one /64": func(i int) string { return fmt.Sprintf("2001:db8:1:2::%x", i+1) },
		"unknown": always(""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			someone := func(i int) string { return fmt.Sprintf("p%d@example.com", i) }
			failed, limited, _ := h.limited([]*accounts.People{h.People}, 30, someone, address)
			if failed != 20 || limited != 10 {
				t.Errorf("%d failed, %d limited, want 20 and 10", failed, limited)
			}
			// What was refused by the address was not charged to the account.
			if failed, _, _ := h.limited([]*accounts.People{h.People}, 5, always("p29@example.com"), always("2001:db8:1:3::1")); failed < 4 {
				t.Errorf("an account was charged for refused attempts: %d more passed", failed)
			}
		})
	}
}

func TestSuccessIsNoFailure(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	for range 30 {
		h.signIn("olga@example.com")
	}
	if failed, limited, _ := h.limited([]*accounts.People{h.People}, 6, always("olga@example.com"), always("192.0.2.1")); failed != 5 || limited != 1 {
		t.Errorf("after 30 sign-ins %d failures and %d limited, want 5 and 1", failed, limited)
	}
}

// An absent limiter fails every call.
type absent struct{}

func (absent) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i] = enforcement.Outcome{Verdict: enforcement.Failed, Err: enforcement.ErrNotReached}
	}
}

func TestWithoutTheLimiterThisNodeCounts(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	alone, hashes := h.node(absent{}, inprocess.New(inprocess.Config{Now: h.clock.at.Load}))
	for range 10 { // refunded where they were charged
		if _, _, _, err := alone.SignIn(t.Context(), "olga@example.com", goodPassword, "192.0.2.1", ""); err != nil {
			t.Fatal(err)
		}
	}
	hashes.Store(0)
	if failed, limited, _ := h.limited([]*accounts.People{alone}, 9, always("olga@example.com"), always("192.0.2.1")); failed != 5 || limited != 4 || hashes.Load() != 5 {
		t.Errorf("%d failed, %d limited, %d hashes, want 5, 4 and 5", failed, limited, hashes.Load())
	}
	nobody, _ := h.node(absent{}, nil)
	_, _, _, err := nobody.SignIn(t.Context(), "olga@example.com", goodPassword, "192.0.2.1", "")
	h.kind(err, problem.Unavailable, "")
	if _, err := accounts.NewPeople(h.store, accounts.PeopleConfig{}); err == nil {
		t.Error("people without a limiter")
	}
}

func TestHashIsRenewedWhenItsCostRises(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	before, err := h.store.User(t.Context(), owner.ID)
	h.must(err)
	accounts.RaiseCost(h.People)
	h.hashes.Store(0)
	h.signIn("olga@example.com")
	after, err := h.store.User(t.Context(), owner.ID)
	h.must(err)
	if after.Password == before.Password || !strings.Contains(after.Password, "t=2,") || h.hashes.Load() != 2 {
		t.Errorf("hash %s after %d hashes", after.Password, h.hashes.Load())
	}
	h.hashes.Store(0)
	if h.signIn("olga@example.com"); h.hashes.Load() != 1 {
		t.Errorf("%d hashes, want 1", h.hashes.Load())
	}
}

func TestSignInByProvider(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ann := h.join(owner, h.tenant.ID, "ann@example.com", accounts.TenantViewer)
	sign := func(who accounts.Identity) (accounts.User, error) {
		who.Issuer = "https://id.example"
		_, _, u, err := h.SignInWith(t.Context(), who, "192.0.2.1", "Browser/1")
		return u, err
	}
	stranger := func(who accounts.Identity) {
		t.Helper()
		_, err := sign(who)
		h.kind(err, problem.Unauthenticated, "unknown_person")
		if e := h.lines()[0]; e.Action != "session.sign_in_failed" || e.Actor.ID != "" {
			t.Errorf("line %+v", e)
		}
	}
	stranger(accounts.Identity{Subject: "1", Email: "ann@example.com"}) // not verified
	stranger(accounts.Identity{Subject: "1"})
	stranger(accounts.Identity{Subject: "1", Email: "eve@example.com", Verified: true})
	kate := h.join(owner, "", "kate@mill.example", accounts.Owner)
	stranger(accounts.Identity{Subject: "k", Email: "\u212aate@m\u0130ll.example", Verified: true}) // looks like her, is not
	if kate, err := h.store.User(t.Context(), kate.ID); err != nil || kate.Subject != "" {
		t.Errorf("somebody else is linked: %+v, %v", kate, err)
	}

	u, err := sign(accounts.Identity{Subject: "1", Email: "ANN@example.com", Verified: true})
	if err != nil || u.ID != ann.ID || u.Subject != "1" {
		t.Fatalf("by address: %+v, %v", u, err)
	}
	// From now on by the link, whatever the address; and it is hers alone.
	if u, err = sign(accounts.Identity{Subject: "1", Email: "else@example.com"}); err != nil || u.ID != ann.ID {
		t.Errorf("by link: %+v, %v", u, err)
	}
	stranger(accounts.Identity{Subject: "2", Email: "ann@example.com", Verified: true})
	h.signIn("ann@example.com") // the password stays

	_, token, err := h.Invite(h.as(owner), owner.Principal(), h.tenant.ID, "Bob@example.com", accounts.TenantAdmin)
	h.must(err)
	stranger(accounts.Identity{Subject: "3", Email: "bob@example.com"})
	u, err = sign(accounts.Identity{Subject: "3", Email: "bob@example.com", Verified: true, Name: "Bob"})
	if err != nil || u.Role != accounts.TenantAdmin || u.TenantID != h.tenant.ID || u.Name != "Bob" || u.Password != "" {
		t.Fatalf("by invitation: %+v, %v", u, err)
	}
	_, err = h.Invitation(t.Context(), token)
	h.kind(err, problem.NotFound, "")

	// The disabled stay out, and whoever is nobody at the provider.
	_, err = h.Disable(h.as(owner), owner.Principal(), h.tenant.ID, u.ID)
	h.must(err)
	stranger(accounts.Identity{Subject: "3", Email: "bob@example.com", Verified: true})
	if _, _, _, err := h.SignInWith(t.Context(), accounts.Identity{Email: "olga@example.com", Verified: true}, "", ""); err == nil {
		t.Error("an identity without issuer and subject signed in")
	}
}

// Failures of others lock out neither the account nor the address for a browser in
// which the person has signed in before. It has a separate limit.
func TestKnownBrowser(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	owner := h.owner()
	ann := h.join(owner, "", "ann@example.com", accounts.Viewer)
	enter := func(browser, email, password string) (accounts.User, error) {
		_, _, u, err := h.SignInFrom(t.Context(), browser, email, password, "192.0.2.9", "Browser/1")
		return u, err
	}
	u, err := enter("", "olga@example.com", goodPassword)
	h.must(err)
	known := h.RememberBrowser(u, "")
	if again := h.RememberBrowser(u, known); again != known {
		t.Error("the browser gets another nonce")
	}
	limited := func(err error) bool { return errors.As(err, new(*accounts.LimitedError)) }
	for range accounts.FailuresPerAccount { // of the account, which is also all of a proxy's address soon
		_, err := enter("", "olga@example.com", "wrong")
		h.kind(err, problem.Unauthenticated, "sign_in_failed")
	}
	for i := range accounts.FailuresPerAddress {
		_, _ = enter("", fmt.Sprintf("x%d@example.com", i), "wrong")
	}
	forged := known[:len(known)-2] + "AA"
	for _, browser := range []string{"", "x", forged, h.RememberBrowser(ann, "")} {
		if _, err := enter(browser, "olga@example.com", goodPassword); !limited(err) {
			t.Errorf("the browser %q is not limited: %v", browser, err)
		}
	}
	if _, err := enter(known, "ann@example.com", goodPassword); !limited(err) {
		t.Errorf("the browser is known for another person: %v", err)
	}
	_, err = enter(known, "olga@example.com", goodPassword)
	h.must(err)
	for range accounts.FailuresPerBrowser {
		_, err := enter(known, "olga@example.com", "wrong")
		h.kind(err, problem.Unauthenticated, "sign_in_failed")
	}
	if _, err := enter(known, "olga@example.com", goodPassword); !limited(err) {
		t.Errorf("a known browser has no limit: %v", err)
	}
	h.clock.advance(accounts.FailureWindow)
	token, s, u, err := h.SignInFrom(t.Context(), known, "olga@example.com", goodPassword, "192.0.2.9", "Browser/1")
	h.must(err)
	_ = token
	_, err = h.ChangePassword(h.as(u), u, s, goodPassword, "another four quiet herons")
	h.must(err)
	for range accounts.FailuresPerAccount {
		_, _ = enter(known, "olga@example.com", goodPassword)
	}
	if _, err := enter(known, "olga@example.com", "another four quiet herons"); !limited(err) {
		t.Errorf("the value outlives the password: %v", err)
	}
	if got := h.RememberBrowser(accounts.User{ID: "u"}, ""); got != "" {
		t.Errorf("a user without a password gets %q", got)
	}
}

// A person has a bounded number of sessions, and the oldest ends.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	var tokens []string
	for range accounts.MaxSessions + 2 {
		h.clock.advance(time.Second)
		token, _, _ := h.signIn("olga@example.com")
		tokens = append(tokens, token)
	}
	for i, token := range tokens {
		_, _, err := h.Session(t.Context(), token)
		if ended := problem.Is(err, problem.Unauthenticated); ended != (i < 2) {
			t.Errorf("session %d has ended: %v, %v", i, ended, err)
		}
	}
	if e := h.lines()[0]; e.Action != "session.end" || !strings.Contains(string(e.After), "too many") {
		t.Errorf("line %+v", e)
	}
}
