// Package traffic serves the pages about counted requests: the overview of all tenants, the
// usage of one tenant, and the usage of one counted key.
package traffic

import (
	"slices"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/share"
)

// Config has what the pages need. Every field except Embedded is required.
type Config struct {
	Tenants    *tenants.Service
	Exceptions *exceptions.Service
	Sharing    *sharing.Service
	Filters    *savedfilters.Service
	// Analytics reads the stored counts. Usage reads what tenants and keys have left of their
	// quotas.
	Analytics *metrics.Analytics
	Usage     *usage.Service
	// Events, Alerts and Nodes return the events that the charts mark.
	Events audit.EventStore
	Alerts *alerts.Service
	Nodes  *nodes.Service
	// Snapshot returns the compiled plans and tenants that this node uses.
	Snapshot func() *snapshot.Snapshot
	// Embedded says that this node counts in its own memory instead of Redis.
	Embedded bool
}

type pages struct {
	*web.Shell
	cfg       Config
	names     requests.Names
	overviews overviewCache
	nodes     nodeCache
	share     *share.Sharer
	saved     *saved.Saver
}

// Routes returns the routes of the pages, for Shell.Register.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const tenant = web.TenantPath
	w := &pages{Shell: shell, cfg: cfg, names: requests.Names{Snapshot: cfg.Snapshot, Tenants: cfg.Tenants}}
	w.overviews.load, w.share = w.loadOverview, share.New(shell, cfg.Sharing, cfg.Tenants)
	w.saved = saved.New(shell, cfg.Filters)
	return slices.Concat(
		w.share.Routes(share.Shareable{Page: sharing.Overview, Path: "/overview", Title: "Overview", Live: true, Freeze: w.freezeOverview}),
		w.share.Routes(share.Shareable{Page: sharing.Traffic, Path: tenant, Title: "Usage", Live: true, Freeze: w.freezeTenant}),
		w.routes())
}

func (w *pages) routes() []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const tenant = web.TenantPath
	return []web.Route{
		web.Get(share.Path, accounts.Public, w.showShared),
		web.Get(share.Path+"/live", accounts.Public, w.liveShared).As(web.Slow),

		web.Get("/overview", all, w.showOverview),
		web.Get("/overview/live", all, w.liveOverview).As(web.Slow),

		web.Get(tenant, own, w.tenantHome),
		web.Get(tenant+"/live", own, w.tenantLive).As(web.Slow),
		web.Get(tenant+"/usage.csv", own, w.tenantCSV).As(web.SlowExpensive),
		web.Get(tenant+"/usage/:policy", own, w.countedKey),
	}
}
