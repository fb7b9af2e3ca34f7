// Package decisions serves the pages about single decisions: the list of recorded denials, the
// page of one denial, and the explanation of a request that the visitor enters.
package decisions

import (
	"net/http"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/requests"
	"github.com/headgate/headgate/web/saved"
	"github.com/headgate/headgate/web/share"
)

// Config has what the pages need. Every field is required.
type Config struct {
	Tenants   *tenants.Service
	Sharing   *sharing.Service
	Filters   *savedfilters.Service
	Analytics *metrics.Analytics // reads recorded decisions
	// Snapshot returns the compiled plans and tenants that this node uses. Decider explains
	// requests by these plans and tenants.
	Snapshot func() *snapshot.Snapshot
	Decider  enforcement.Decider
	// Answer returns the HTTP status and the headers with which the API answers a decision.
	Answer func(*enforcement.Decision) (status int, header http.Header)
}

type pages struct {
	*web.Shell
	cfg   Config
	names requests.Names
	share *share.Sharer
	saved *saved.Saver
}

// Routes returns the routes of the pages, for Shell.Register.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const tenant = web.TenantPath
	w := &pages{Shell: shell, cfg: cfg, names: requests.Names{Snapshot: cfg.Snapshot, Tenants: cfg.Tenants}}
	w.share, w.saved = share.New(shell, cfg.Sharing, cfg.Tenants), saved.New(shell, cfg.Filters)
	shared := func(path string) []web.Route {
		return w.share.Routes(share.Shareable{Page: sharing.Denials, Path: path, Title: "Denials", Freeze: w.freezeDenials})
	}
	return append(append(shared("/denials"), shared(tenant+"/denials")...),
		web.Get("/denials", all, w.showDenials),
		web.Get("/denials/live", all, w.liveDenials).As(web.Slow),
		web.Get("/denials/:decision", all, w.showDenial),
		web.Get("/explain", all, w.explainAny),
		web.Get(tenant+"/denials", own, w.showDenials),
		web.Get(tenant+"/denials/live", own, w.liveDenials).As(web.Slow),
		web.Get(tenant+"/denials/:decision", own, w.showDenial),
		web.Get(tenant+"/explain", own, w.explainTenant),
	)
}
