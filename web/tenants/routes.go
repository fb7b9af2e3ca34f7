// Package tenants serves the pages about tenants: the list, the settings, the change of a plan, and
// the exceptions, which are overrides, list entries, blocks and grants. It also serves the page
// that resets counters, the page that revokes leases, and the pages about open reservations.
package tenants

import (
	"slices"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/savedfilters"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/saved"
)

// Config has what the pages need. Every field is required.
type Config struct {
	Filters    *savedfilters.Service // lists the saved filters of a page
	Tenants    *tenants.Service
	Plans      *plans.Service
	Exceptions *exceptions.Service
	// Analytics reads recorded counts. Usage reads and resets counters.
	Analytics *metrics.Analytics
	Usage     *usage.Service
	// Snapshot returns the current snapshot of this node.
	Snapshot func() *snapshot.Snapshot
}

type pages struct {
	*web.Shell
	saved *saved.Saver
	cfg   Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const read, except, write = accounts.TenantRead, accounts.ExceptionsWrite, accounts.TenantWrite
	const settings, overrides, lists = web.TenantPath + "/settings", web.TenantPath + "/overrides", web.TenantPath + "/lists"
	const blocks, reset, grants = web.TenantPath + "/blocks", web.TenantPath + "/reset", web.TenantPath + "/grants"
	const revoke = web.TenantPath + "/leases/revoke"
	w := &pages{Shell: shell, cfg: cfg, saved: saved.New(shell, cfg.Filters)}
	rows := []web.Route{
		web.Get("/tenants", accounts.TenantsList, w.listTenants),
		web.PostForm("/tenants", write, w.createTenant, "name", "slug", "plan", "no_policy"),
		web.Get("/tenants/new", write, w.newTenantForm),

		web.Get(settings, write, w.tenantSettings),
		web.PostForm(settings, write, w.saveTenant, "name", "time_zone", "billing_anchor_day", "no_policy", "require_route",
			"redact_values", "max_keys", "sample_allowed", "trace", "version"),
		web.Get(settings+"/plan", write, w.comparePlans),
		web.PostForm(settings+"/plan", write, w.changePlan, "plan", "version"),
		web.Get(settings+"/suspend", write, w.suspendForm),
		web.PostForm(settings+"/suspend", write, w.setStatus(tenants.Suspended, "tenant-suspended")),
		web.PostForm(settings+"/resume", write, w.setStatus(tenants.Active, "tenant-resumed")),
		web.PostForm(settings+"/delete", write, w.deleteTenant, "confirm", "version"),

		web.Get(overrides, read, w.listOverrides),
		web.Post(overrides, except, w.createOverride),
		web.Get(overrides+"/new", except, w.newOverrideForm),
		web.Get(overrides+"/:override/change", except, w.changeOverrideForm),
		web.Post(overrides+"/:override/change", except, w.changeOverride),

		web.Get(lists, read, w.listEntries),
		web.PostForm(lists, except, w.createEntry, "list", "attribute", "value", "reason", "life", "until"),
		web.Get(lists+"/new", except, w.newEntryForm),

		web.Get(blocks, read, w.listBlocks),
		web.Post(blocks, except, w.createBlock),
		web.Get(blocks+"/new", except, w.newKeyForm("Block a key",
			"A block belongs to one policy. Choose the policy first.", "/blocks", w.blockForm)),

		web.Get(grants, read, w.listGrants),
		web.Post(grants, except, w.createGrant),
		web.Get(grants+"/new", except, w.newKeyForm("New grant",
			"A grant belongs to one limit of a policy. Choose the policy first.", "/grants", w.grantForm)),

		web.Get(reset, except, w.newKeyForm("Reset a key", "Counters belong to one policy. Choose the policy first.", "", w.resetForm)),
		web.Post(reset, except, w.resetKey),
		web.Get(revoke, except, w.newKeyForm("Revoke a lease", "Leases belong to one policy. Choose the policy first.", "", w.revokeForm)),
		web.Post(revoke, except, w.revokeLease),
	}
	e := cfg.Exceptions
	return slices.Concat(rows, reservationRoutes(w),
		deleteRoutes(w, "/overrides", "override", "Overrides", "override-deleted", e.Override, e.DeleteOverride, confirmOverride),
		deleteRoutes(w, "/lists", "entry", "Lists", "entry-deleted", e.Entry, e.DeleteEntry, confirmEntry),
		deleteRoutes(w, "/blocks", "block", "Blocks", "block-deleted", e.Block, e.DeleteBlock, confirmBlock),
		deleteRoutes(w, "/grants", "grant", "Grants", "grant-deleted", e.Grant, e.DeleteGrant, confirmGrant))
}
