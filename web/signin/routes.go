// Package signin serves the pages by which people come in: sign-in by password
// and by OpenID Connect, the set-up link, invitations, and one's own account.
package signin

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web"
)

// Config of the pages.
type Config struct {
	People *accounts.People
	// Provider signs people in by OpenID Connect, under the name ProviderName. It
	// redirects to /sign-in/oidc/callback. If nil, people sign in with passwords.
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
		web.Post("/sign-in", public, w.signIn).As(web.Slow),
		web.Get("/setup/:token", public, w.joinForm),
		web.Post("/setup/:token", public, w.join).As(web.Slow),
		web.Get("/invite/:token", public, w.joinForm),
		web.Post("/invite/:token", public, w.join).As(web.Slow),
		web.Post("/sign-out", self, w.signOut),

		web.Get("/account", self, w.account),
		web.Post("/account/name", self, w.changeName),
		web.Post("/account/password", self, w.changePassword).As(web.Slow),
		web.Post("/account/sessions/end-others", self, w.endOthers),
		web.Post("/account/sessions/:session/end", self, w.endSession),
	}
	if cfg.Provider == nil {
		return rows
	}
	return append(rows,
		web.Get("/sign-in/oidc", public, w.toProvider).As(web.Slow),
		web.Get("/sign-in/oidc/callback", public, w.fromProvider).As(web.Slow))
}
