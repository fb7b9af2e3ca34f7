// Package traffic serves the pages about decided requests: the overview, a
// tenant's usage, one counted key, denials, and the explanation of a request.
package traffic

import (
	"net/http"

	"github.com/headgate/headgate/enforcement"
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
	// Snapshot is in force on this node. Decider explains requests with it.
	Snapshot func() *snapshot.Snapshot
	Decider  enforcement.Decider
	// Answer returns the status and the headers of the API's answer to a decision.
	Answer func(*enforcement.Decision) (status int, header http.Header)
}

type pages struct {
	*web.Shell
	cfg       Config
	overviews overviewCache
	nodes     nodeCache
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const tenant = web.TenantPath
	w := &pages{Shell: shell, cfg: cfg}
	w.overviews.load = w.loadOverview
	return []web.Route{
		web.Get("/overview", all, w.showOverview),
		web.Get("/overview/live", all, w.liveOverview).As(web.Slow),
		web.Get("/denials", all, w.showDenials),
		web.Get("/denials/live", all, w.liveDenials).As(web.Slow),
		web.Get("/denials/:decision", all, w.showDenial),
		web.Get("/explain", all, w.explainAny),

		web.Get(tenant, own, w.tenantHome),
		web.Get(tenant+"/live", own, w.tenantLive).As(web.Slow),
		web.Get(tenant+"/usage.csv", own, w.tenantCSV).As(web.SlowExpensive),
		web.Get(tenant+"/usage/:policy", own, w.countedKey),
		web.Get(tenant+"/denials", own, w.showDenials),
		web.Get(tenant+"/denials/live", own, w.liveDenials).As(web.Slow),
		web.Get(tenant+"/denials/:decision", own, w.showDenial),
		web.Get(tenant+"/explain", own, w.explainTenant),
	}
}
