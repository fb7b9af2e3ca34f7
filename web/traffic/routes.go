// Package traffic serves the pages about counted requests: the overview, a tenant's
// usage, and one counted key.
package traffic

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
)

// Config of the pages. Every field is needed.
type Config struct {
	Tenants    *tenants.Service
	Exceptions *exceptions.Service
	// Analytics reads the counts. Usage reads what tenants and keys have left.
	Analytics *metrics.Analytics
	Usage     *usage.Service
	// Events, Alerts and Nodes have the events that charts mark.
	Events audit.EventStore
	Alerts *alerts.Service
	Nodes  *nodes.Service
	// Snapshot is in force on this node.
	Snapshot func() *snapshot.Snapshot
}

type pages struct {
	*web.Shell
	cfg       Config
	names     requests.Names
	overviews overviewCache
	nodes     nodeCache
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const tenant = web.TenantPath
	w := &pages{Shell: shell, cfg: cfg, names: requests.Names{Snapshot: cfg.Snapshot, Tenants: cfg.Tenants}}
	w.overviews.load = w.loadOverview
	return []web.Route{
		web.Get("/overview", all, w.showOverview),
		web.Get("/overview/live", all, w.liveOverview).As(web.Slow),

		web.Get(tenant, own, w.tenantHome),
		web.Get(tenant+"/live", own, w.tenantLive).As(web.Slow),
		web.Get(tenant+"/usage.csv", own, w.tenantCSV).As(web.SlowExpensive),
		web.Get(tenant+"/usage/:policy", own, w.countedKey),
	}
}
