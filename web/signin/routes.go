// Package signin serves the pages for signing in: by password and by OpenID Connect, the link
// that creates the first owner, invitations, and the page of the visitor's own account.
package signin

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// Config of the pages.
type Config struct {
	People *accounts.People
	// Tenants finds the name of the tenant to which an invitation belongs.
	Tenants *tenants.Service
	// Provider signs people in by OpenID Connect. ProviderName is its name on pages. It
	// redirects to /sign-in/oidc/callback. If Provider is nil, people sign in with passwords.
	Provider     Provider
	ProviderName string
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const public, self = accounts.Public, accounts.Self
	w := &pages{Shell: shell, cfg: cfg}
	rows := []web.Route{
		web.Get("/sign-in", public, w.signInForm),
		web.PostForm("/sign-in", public, w.signIn, "email", "password", "next").As(web.Slow),
		web.Get(secondPath, public, w.secondStep),
		web.PostForm(secondPath, public, w.finishSignIn, "code", "next"),
		web.PostForm(secondPath+"/use-passkey", public, w.finishWithPasskey, "response", "next"),
		web.Get(secondPath+"/app", public, w.secondStepApp),
		web.PostForm(secondPath+"/app", public, w.enrollApp, "secret", "code", "name", "next"),
		web.Get(secondPath+"/passkey", public, w.secondStepPasskey),
		web.PostForm(secondPath+"/passkey", public, w.enrollPasskey, "name", "response", "next"),
		web.Get("/setup/:token", public, w.joinForm),
		web.PostForm("/setup/:token", public, w.join, "email", "name", "password").As(web.Slow),
		web.Get("/invite/:token", public, w.joinForm),
		web.PostForm("/invite/:token", public, w.join, "email", "name", "password").As(web.Slow),
		web.PostForm("/sign-out", self, w.signOut),

		web.Get("/account", self, w.account),
		web.PostForm("/account/name", self, w.changeName, "name"),
		// The form has the field username because password managers use it to find the account.
		web.PostForm("/account/password", self, w.changePassword, "current_password", "password", "username").As(web.Slow),
		web.Get(factorsPath, self, w.secondFactors),
		web.PostForm(factorsPath+"/confirm", self, w.confirm, "password", "code").As(web.Slow),
		web.PostForm(factorsPath+"/confirm-passkey", self, w.confirmWithPasskey, "passkey_password", "response").As(web.Slow),
		web.Get(factorsPath+"/app", self, w.app),
		web.PostForm(factorsPath+"/app", self, w.addApp, "secret", "code", "name"),
		web.Get(factorsPath+"/passkey", self, w.passkey),
		web.PostForm(factorsPath+"/passkey", self, w.addPasskey, "name", "response"),
		web.PostForm(codesPath, self, w.newCodes),
		web.Get(codesPath+"/:once", self, w.showCodes),
		web.PostForm(factorsPath+"/:factor/remove", self, w.removeFactor),

		web.PostForm("/account/sessions/end-others", self, w.endOthers),
		web.PostForm("/account/sessions/:session/end", self, w.endSession),
	}
	if cfg.Provider == nil {
		return rows
	}
	return append(rows,
		web.Get("/sign-in/oidc", public, w.toProvider).As(web.Slow),
		web.Get("/sign-in/oidc/callback", public, w.fromProvider).As(web.Slow))
}
