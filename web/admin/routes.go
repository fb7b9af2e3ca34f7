// Package admin serves the pages of administration: people and members, API and
// operator keys, the audit log, the nodes, and the settings.
package admin

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/export"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/sharing"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/saved"
)

// Config of the pages.
type Config struct {
	People  *accounts.People
	Tenants *tenants.Service
	// Audit is the audit log. AuditLines is the maximum number of entries in a downloaded file;
	// the default is 100,000.
	Audit      audit.Store
	AuditLines int
	Sharing    *sharing.Service      // lists and revokes shared links
	Filters    *savedfilters.Service // lists the saved filters of a page
	// Snapshot returns the current snapshot of this node. Nodes returns the reports of all
	// nodes.
	Snapshot func() *snapshot.Snapshot
	Nodes    *nodes.Service
	// Analytics counts the checks that no policy matched.
	Analytics *metrics.Analytics
	// Mail is set if this node sends e-mail; invitations then have a check box.
	Mail bool
	// Process describes the process that serves the pages.
	Process Process
}

type pages struct {
	*web.Shell
	cfg   Config
	chain chain
	saved *saved.Saver
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	cfg.AuditLines = cmp.Or(cfg.AuditLines, export.DefaultMaxRows)
	w := &pages{Shell: shell, cfg: cfg, saved: saved.New(shell, cfg.Filters)}
	return slices.Concat(
		w.peopleRoutes("/people", accounts.PeopleRead, accounts.PeopleWrite),
		w.peopleRoutes(web.TenantPath+"/members", accounts.MembersRead, accounts.MembersWrite),
		w.keyRoutes(web.TenantPath+"/keys", accounts.KeysRead, accounts.KeysWrite),
		w.keyRoutes(operatorKeysPath, accounts.OperatorKeysRd, accounts.OperatorKeysWr),
		w.sharedLinkRoutes(web.TenantPath+"/links", true),
		w.sharedLinkRoutes(sharedLinksPath, false),
		w.auditRoutes(), w.settingsRoutes())
}

// peopleRoutes returns the routes for the operator's people, or for a tenant's members.
func (w *pages) peopleRoutes(base string, read, write accounts.Action) []web.Route {
	return []web.Route{
		web.Get(base, read, w.listPeople),
		web.PostForm(base, write, w.invite, "email", "role", "mail"),
		web.PostForm(base+"/invitations/:invitation/withdraw", write, w.withdraw),
		web.Get(base+"/:user", read, w.onePerson),
		web.PostForm(base+"/:user/role", write, w.change(w.changeRole), "role"),
		web.PostForm(base+"/:user/link", write, w.renew),
		web.Get(base+"/links/:once", write, w.showLink),
		web.PostForm(base+"/:user/disable", write, w.change(w.disable)),
		web.PostForm(base+"/:user/enable", write, w.change(w.enable)),
		web.PostForm(base+"/:user/reset-second-factor", write, w.change(w.resetSecondFactor)),
		web.PostForm(base+"/:user/remove", write, w.change(w.remove), "confirm"),
	}
}

// keyRoutes returns the routes for the keys of a tenant, or of the operator.
func (w *pages) keyRoutes(base string, read, write accounts.Action) []web.Route {
	return []web.Route{
		web.Get(base, read, w.listKeys),
		web.PostForm(base, write, w.createKey, "name", "scope-check", "scope-read", "scope-manage",
			"scope-identify", "token", "max_cost", "peek-only", "allowed_ips", "life", "until"),
		web.Get(base+"/new", write, w.newKeyForm),
		web.Get(base+"/new/:once", write, w.showToken),
		web.Get(base+"/:key/rotate", write, w.confirmKey("rotate", "Rotate")),
		web.PostForm(base+"/:key/rotate", write, w.rotateKey, "overlap"),
		web.Get(base+"/:key/revoke", write, w.confirmKey("revoke", "Revoke")),
		web.PostForm(base+"/:key/revoke", write, w.revokeKey, "with-created"),
	}
}

func (w *pages) auditRoutes() []web.Route {
	const all, own = accounts.TenantsList, accounts.TenantRead
	const ofTenant = web.TenantPath + "/audit"
	return []web.Route{
		web.Get("/audit", all, w.showAudit),
		web.Get("/audit.csv", all, w.auditCSV).As(web.SlowExpensive),
		web.PostForm("/audit/verify", all, w.verifyAudit).As(web.SlowExpensive),
		web.Get("/audit/:line", all, w.showAuditLine),
		web.Get(ofTenant, own, w.showAudit),
		web.Get(ofTenant+".csv", own, w.auditCSV).As(web.SlowExpensive),
		web.Get(ofTenant+"/:line", own, w.showAuditLine),
	}
}

func (w *pages) settingsRoutes() []web.Route {
	const read = accounts.OperatorKeysRd
	return []web.Route{
		web.Get("/system", accounts.TenantsList, w.showSystem),
		web.Get("/system/live", accounts.TenantsList, w.liveSystem).As(web.Slow),
		web.Get("/settings", read, func(c echo.Context) error { return c.Redirect(http.StatusSeeOther, operatorKeysPath) }),
		web.Get("/settings/retention", read, w.showRetention),
		web.Get("/settings/roles", read, w.showRoles),
		web.Get("/settings/about", read, w.showAbout),
	}
}
