package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/oidc"
	"github.com/headgate/headgate/internal/retry"
	"github.com/headgate/headgate/web/signin"
)

// openPeople creates the service for users and sessions. If no user exists, it also creates the
// first owner, or a link with which the first owner can create an account. Failed sign-ins are
// counted by the limiter that decides checks. If this limiter is Redis, all nodes share these
// counters.
func (n *node) openPeople(ctx context.Context, s *serveCommand, log *slog.Logger) error {
	sealer, err := sealerOf(s.SecretsKey, s.SecretsKeyOld)
	if err != nil {
		return err
	}
	cfg := accounts.PeopleConfig{Limiter: n.local, Logger: log, Sealer: sealer, RequireSecondFactor: rolesIn(s.RequireSecondFactor)}
	if n.shared != nil {
		cfg.Limiter, cfg.Local = n.shared, n.local
	}
	if n.people, err = accounts.NewPeople(n.store, cfg); err != nil {
		return err
	}
	ctx = audit.With(ctx, audit.Actor{Kind: "command", ID: "first start", Name: "first start"}, audit.Origin{})
	if s.AdminEmail != "" {
		_, made, err := n.people.FirstOwner(ctx, s.AdminEmail, s.AdminPassword)
		if err != nil {
			return fmt.Errorf("%s: %w", settingName("admin-email"), err)
		}
		if made {
			log.Info("created the first owner", "email", s.AdminEmail)
		}
		return nil
	}
	if n.made.setup, err = n.people.SetupLink(ctx); err != nil {
		return fmt.Errorf("make a set-up link: %w", err)
	}
	return nil
}

// keepPeople starts two tasks: one deletes expired sessions, the other writes denied accesses to
// the audit log.
func (n *node) keepPeople(work context.Context, tasks *errgroup.Group, log *slog.Logger) {
	n.refusals = accounts.NewDeniedAccessLog(n.store, accounts.DeniedAccessConfig{Logger: log})
	tasks.Go(func() error { return n.refusals.Run(work) })
	tasks.Go(func() error {
		for retry.Wait(work, 10*time.Minute) == nil {
			if err := n.people.EndOverSessions(work); err != nil {
				log.Warn("could not delete expired sessions", "error", err)
			}
		}
		return nil
	})
}

// provider returns the OpenID Connect provider in the settings, or nil if there is none.
func (s *serveSettings) provider() (signin.Provider, error) {
	if s.OIDCIssuer == "" {
		return nil, nil
	}
	return oidc.New(oidc.Config{
		Issuer: s.OIDCIssuer, ClientID: s.OIDCClientID, ClientSecret: s.OIDCClientSecret,
		RedirectURL: strings.TrimSuffix(s.PublicURL, "/") + "/sign-in/oidc/callback",
	})
}
