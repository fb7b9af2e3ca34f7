package playground

import (
	"context"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/web"
)

// Config has what the page needs. Every field is required.
type Config struct {
	// Simulate plays one scenario.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the routes of the pages, for Shell.Register.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	w := &pages{Shell: shell, cfg: cfg}
	return []web.Route{
		web.Get("/playground", accounts.Simulate, w.playground).As(web.Expensive),
		web.Get("/playground/scenarios", accounts.Simulate, w.playedScenarios).As(web.Expensive),
	}
}
