package web_test

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
)

// issuer replaces package oidc, which has its own tests. It signs in the person whose name is
// the code.
type issuer struct{ verified bool }

const away = "a-cookie_of-32-bytes"

func (issuer) Start(context.Context) (string, string, error) {
	return "https://id.example/authorize?state=s", away, nil
}

func (i issuer) Finish(_ context.Context, cookie, code, state string) (accounts.Identity, error) {
	if cookie != away || state != "s" {
		return accounts.Identity{}, problem.New(problem.Unauthenticated, "this sign-in is over or was not begun here: begin again")
	}
	if code == "away" {
		return accounts.Identity{}, problem.New(problem.Unavailable, "the sign-in provider does not answer")
	}
	return accounts.Identity{Issuer: "https://id.example", Subject: code, Email: code, Verified: i.verified, Name: code}, nil
}

func withIssuer(verified bool) func(*config) {
	return func(cfg *config) { cfg.signin.Provider, cfg.signin.ProviderName = issuer{verified}, "Example <ID>" }
}

// back sends the redirect from the provider like a browser: from another site.
func (w *world) back(code, state, cookie string) reply {
	w.t.Helper()
	return w.send("GET", "/sign-in/oidc/callback?"+url.Values{"code": {code}, "state": {state}}.Encode(), "", nil, func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if cookie != "" {
			r.AddCookie(&http.Cookie{Name: "headgate-oidc", Value: cookie})
		}
	})
}

func (r reply) named(name string) *http.Cookie {
	for _, c := range r.Result().Cookies() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// A person with an account or an invitation can sign in at the provider, and then gets the
// requested page. The button is only shown if a provider is configured.
func TestSignInByProvider(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withIssuer(true))
	if page := w.get("/sign-in?next=/people", ""); !strings.Contains(page.body, `href="/sign-in/oidc?next=%2Fpeople"`) || !strings.Contains(page.body, "Continue with Example &lt;ID&gt;") {
		t.Errorf("no button: %s", page.body)
	}
	if page := newWorld(t).get("/sign-in", ""); strings.Contains(page.body, "/sign-in/oidc") {
		t.Error("a button without a provider")
	}
	start := w.get("/sign-in/oidc?next=/people", "")
	cookie := start.named("headgate-oidc")
	if start.Code != http.StatusSeeOther || start.Header().Get("Location") != "https://id.example/authorize?state=s" || cookie == nil ||
		!cookie.HttpOnly || cookie.Path != "/" || cookie.Domain != "" || cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge != 600 {
		t.Fatalf("start: %d %v", start.Code, start.Header())
	}
	in := w.back("viewer@people.example", "s", cookie.Value)
	if in.Code != http.StatusSeeOther || in.Header().Get("Location") != "/people" || in.named("headgate") == nil || in.named("headgate-oidc").MaxAge != -1 {
		t.Fatalf("back: %d %v", in.Code, in.Header())
	}
	if page := w.get("/account", in.named("headgate").Value); !strings.Contains(page.body, "viewer@people.example") {
		t.Error("somebody else is signed in")
	}
	ctx := audit.With(t.Context(), audit.Actor{Kind: "command", ID: "test", Name: "test"}, audit.Origin{})
	_, _, err := w.people.Invite(ctx, accounts.CommandPrincipal("test"), "", "new@people.example", accounts.Viewer)
	must(t, err)
	in = w.back("new@people.example", "s", away+"~"+"//evil.example")
	if in.Code != http.StatusSeeOther || in.Header().Get("Location") != "/" {
		t.Fatalf("invited: %d %v", in.Code, in.Header())
	}
	if page := w.get("/account", in.named("headgate").Value); !strings.Contains(page.body, "It has no password here") {
		t.Errorf("somebody without a password is asked for it: %s", page.body)
	}
}

// Unknown people, invalid answers, and an unavailable provider lead back to the form,
// without a session, and the stored state of the sign-in is deleted.
func TestSignInByProviderFails(t *testing.T) {
	t.Parallel()
	w, unverified := newWorld(t, withIssuer(true)), newWorld(t, withIssuer(false))
	for name, c := range map[string]struct {
		reply  reply
		status int
	}{
		"stranger":   {w.back("nobody@people.example", "s", away+"~"), http.StatusUnprocessableEntity},
		"unverified": {unverified.back("viewer@people.example", "s", away+"~"), http.StatusUnprocessableEntity},
		"no cookie":  {w.back("viewer@people.example", "s", ""), http.StatusUnprocessableEntity},
		"no state":   {w.back("viewer@people.example", "", away+"~"), http.StatusUnprocessableEntity},
		"away":       {w.back("away", "s", away+"~"), http.StatusServiceUnavailable},
	} {
		if c.reply.Code != c.status || c.reply.named("headgate") != nil || c.reply.named("headgate-oidc").MaxAge != -1 || !strings.Contains(c.reply.body, `role="alert"`) {
			t.Errorf("%s: %d %v", name, c.reply.Code, c.reply.Header())
		}
		strict(t, name, c.reply.tree(t))
	}
}
