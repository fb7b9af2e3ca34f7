//go:build !quick

package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/servertest/browser"
)

// In a browser with an authenticator, a person adds a passkey and signs in with it, with the
// keyboard. The pages fit a phone, in both themes, and have no faults of accessibility.
func TestPasskeyInABrowser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	origin := strings.Replace(server.URL, "127.0.0.1", "localhost", 1) // passkeys need a host name
	b := browser.Start(t, origin)
	axe := axeSource(t)
	bounded, cancel := context.WithTimeout(b.Context, 3*time.Minute)
	t.Cleanup(cancel)
	b.Context = bounded
	people, err := w.people.Users(t.Context(), accounts.CommandPrincipal("test"), "", accounts.UserFilter{Query: "owner"})
	must(t, err)
	_, err = chromedp.Call(b.Context, webauthn.Enable, webauthn.EnableParams{})
	must(t, err)
	_, err = chromedp.Call(b.Context, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{
			Protocol: webauthn.AuthenticatorProtocolCtap2, Transport: webauthn.AuthenticatorTransportInternal,
			HasUserVerification: true, IsUserVerified: true, AutomaticPresenceSimulation: true,
		},
	})
	must(t, err)
	looks := func(name string) {
		t.Helper()
		b.Do(chromedp.Evaluate[chromedp.Void](axe))
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.Evaluate[chromedp.Void](`document.documentElement.dataset.theme = "` + theme + `"`))
			for _, width := range []int64{360, 1280} {
				b.Do(chromedp.EmulateViewport(width, 900))
				keep(t, b, name+" "+theme+map[int64]string{360: " 360", 1280: " 1280"}[width])
				if wide := browser.Evaluate[[]string](b, sticksOut); len(wide) > 0 {
					t.Errorf("%s %d: wider than the page: %q", name, width, wide)
				}
			}
			for _, v := range browser.Evaluate[[]violation](b, everyRule) {
				t.Errorf("%s %s: %s (%s) %+v", name, theme, v.ID, v.Help, v.Nodes)
			}
		}
	}
	enter := func() {
		t.Helper()
		b.Open(origin + "/sign-in")
		b.Follow(chromedp.SendKeys("#email", people[0].Email), chromedp.SendKeys("#password", password+kb.Enter))
	}

	enter()
	b.Open(origin + "/account/second-factor/passkey")
	looks("passkey")
	if status := b.Follow(chromedp.SendKeys("#name", kb.Enter)); status != http.StatusOK {
		t.Fatalf("the passkey was not added: %d %s", status, b.Text("main"))
	}
	if codes := browser.Evaluate[string](b, `document.getElementById("recovery-codes").textContent`); strings.Count(codes, "\n") != 9 {
		t.Errorf("recovery codes %q", codes)
	}
	looks("recovery codes")
	b.Open(origin + "/account/second-factor")
	looks("second factors")
	b.Open(origin + "/account/second-factor/app")
	looks("authenticator app")
	w.now.Add(accounts.ConfirmedFor.Microseconds())
	b.Open(origin + "/account/second-factor")
	looks("confirmation")
	b.Follow(chromedp.SendKeys("#passkey_password", password+kb.Enter))
	if text := b.Text("main"); !strings.Contains(text, "Add a passkey") {
		t.Errorf("after the confirmation: %s", text)
	}

	b.Cookies(origin, nil)
	enter()
	looks("second step")
	b.Follow(chromedp.SendKeys("form[data-passkey] button", kb.Enter))
	if path := browser.Evaluate[string](b, `location.pathname`); path != "/overview" {
		t.Errorf("the passkey leads to %s: %s", path, b.Text("main"))
	}
	if list := b.Complaints(); len(list) > 0 {
		t.Errorf("the browser complains:\n%s", strings.Join(list, "\n"))
	}
}
