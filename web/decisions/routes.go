// Package decisions serves the pages about single decisions: the list of recorded
// ones, one of them, and the explanation of a request that the visitor enters.
package decisions

import (
	"net/http"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
)

// Config of the pages. Every field is needed.
type Config struct {
	Tenants   *tenants.Service
	Analytics *metrics.Analytics // reads recorded decisions
	// Snapshot is in force on this node. Decider explains requests with it.
	Snapshot func() *snapshot.Snapshot
	Decider  enforcement.Decider
	// Answer returns the status and the headers of the API's answer to a decision.
	Answer func(*enforcement.Decision) (status int, header http.Header)
}

type pages struct {
	*web.Shell
	cfg   Config
	names requests.Names
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const tenant = web.TenantPath
	w := &pages{Shell: shell, cfg: cfg, names: requests.Names{Snapshot: cfg.Snapshot, Tenants: cfg.Tenants}}
	return []web.Route{
		web.Get("/denials", all, w.showDenials),
		web.Get("/denials/live", all, w.liveDenials).As(web.Slow),
		web.Get("/denials/:decision", all, w.showDenial),
		web.Get("/explain", all, w.explainAny),
		web.Get(tenant+"/denials", own, w.showDenials),
		web.Get(tenant+"/denials/live", own, w.liveDenials).As(web.Slow),
		web.Get(tenant+"/denials/:decision", own, w.showDenial),
		web.Get(tenant+"/explain", own, w.explainTenant),
	}
}
