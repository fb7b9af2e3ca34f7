// Package tenants serves the pages of tenants: the list, settings, the change of
// a plan, and exceptions: overrides, lists, blocks, and resets of counters.
package tenants

import (
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/usage"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
	"github.com/headgate/headgate/web"
)

// Config of the pages. Every field is needed.
type Config struct {
	Tenants    *tenants.Service
	Plans      *plans.Service
	Exceptions *exceptions.Service
	// Analytics reads the counts. Usage reads and resets counters.
	Analytics *metrics.Analytics
	Usage     *usage.Service
	// Snapshot is in force on this node.
	Snapshot func() *snapshot.Snapshot
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const read, except, write = accounts.TenantRead, accounts.ExceptionsWrite, accounts.TenantWrite
	const settings, overrides, lists = web.TenantPath + "/settings", web.TenantPath + "/overrides", web.TenantPath + "/lists"
	const blocks, reset = web.TenantPath + "/blocks", web.TenantPath + "/reset"
	w := &pages{Shell: shell, cfg: cfg}
	return []web.Route{
		web.Get("/tenants", accounts.TenantsList, w.listTenants),
		web.Post("/tenants", write, w.createTenant),
		web.Get("/tenants/new", write, w.newTenantForm),

		web.Get(settings, write, w.tenantSettings),
		web.Post(settings, write, w.saveTenant),
		web.Get(settings+"/plan", write, w.comparePlans),
		web.Post(settings+"/plan", write, w.changePlan),
		web.Get(settings+"/suspend", write, w.suspendForm),
		web.Post(settings+"/suspend", write, w.suspendTenant),
		web.Post(settings+"/resume", write, w.resumeTenant),
		web.Post(settings+"/delete", write, w.deleteTenant),

		web.Get(overrides, read, w.listOverrides),
		web.Post(overrides, except, w.createOverride),
		web.Get(overrides+"/new", except, w.newOverrideForm),
		web.Get(overrides+"/:override/delete", except, w.deleteOverrideForm),
		web.Post(overrides+"/:override/delete", except, w.deleteOverride),

		web.Get(lists, read, w.listEntries),
		web.Post(lists, except, w.createEntry),
		web.Get(lists+"/new", except, w.newEntryForm),
		web.Get(lists+"/:entry/delete", except, w.deleteEntryForm),
		web.Post(lists+"/:entry/delete", except, w.deleteEntry),

		web.Get(blocks, read, w.listBlocks),
		web.Post(blocks, except, w.createBlock),
		web.Get(blocks+"/new", except, w.newBlockForm),
		web.Get(blocks+"/:block/delete", except, w.deleteBlockForm),
		web.Post(blocks+"/:block/delete", except, w.deleteBlock),

		web.Get(reset, except, w.resetForm),
		web.Post(reset, except, w.resetKey),
	}
}
