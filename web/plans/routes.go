// Package plans serves the pages of plans: the list, the editor of drafts,
// preview, publishing and history.
package plans

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// Config has what the pages need. Every field is required.
type Config struct {
	Plans *plans.Service
	// Preview computes what a draft would do. Nodes returns which revision each node uses. Audit
	// is the audit log.
	Preview *preview.Service
	Nodes   *nodes.Service
	Audit   audit.Store
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const read, write = accounts.PlansRead, accounts.PlansWrite
	const plan, version = "/plans/:plan", "/plans/:plan/versions/:version"
	w := &pages{Shell: shell, cfg: cfg}
	return []web.Route{
		web.Get("/plans", read, w.listPlans),
		web.Get("/plans/new", write, w.newPlanForm),
		web.PostForm("/plans/new", write, w.createPlan, "slug", "name", "from"),
		web.Get(plan, read, w.ofPlan(w.showPlan)),
		web.PostForm(plan+"/delete", write, w.atRevision(w.deletePlan), "revision", "confirm"),
		web.Get(plan+"/edit", write, w.ofPlan(w.editDraft)),
		web.Post(plan+"/edit", write, w.postDraft),
		web.Get(plan+"/edit/json", write, w.ofPlan(w.editDraftText)),
		web.Post(plan+"/edit/json", write, w.postDraftText),
		web.Get(plan+"/diff", read, w.ofPlan(w.diffPlan)),
		web.Get(plan+"/publish", write, w.ofPlan(w.publishForm)),
		web.PostForm(plan+"/publish", write, w.atRevision(w.publishPlan), "revision", "note"),
		web.Get(plan+"/rollout", read, w.ofPlan(w.rollout)),
		web.Get(plan+"/history", read, w.ofPlan(w.planHistory)),
		web.Get(plan+"/preview", read, w.ofPlan(w.previewPlan)).As(web.SlowExpensive),
		web.PostForm(plan+"/preview/shadow", write, w.atRevision(w.shadowPolicy), "policy", "revision"),
		web.Get(version, read, w.ofVersion(w.planVersion)),
		web.Get(version+"/publish", write, w.ofVersion(w.rollbackForm)),
		web.PostForm(version+"/publish", write, w.rollBack, "in_force", "note"),
		web.PostForm(version+"/copy", write, w.copyVersion, "revision"),
	}
}

// ofPlan returns a handler that finds the plan in the path and calls h with it.
func (w *pages) ofPlan(h func(echo.Context, plans.Plan) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		p, err := w.planOf(c)
		if err != nil {
			return err
		}
		return h(c, p)
	}
}

// ofVersion returns a handler that finds the plan and the version in the path and calls h with
// them.
func (w *pages) ofVersion(h func(echo.Context, plans.Plan, plans.Version) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		p, v, err := w.versionOf(c)
		if err != nil {
			return err
		}
		return h(c, p, v)
	}
}

// atRevision returns a handler for a form about the plan in the path. It calls h with the
// revision in the form, which is the revision that the visitor saw.
func (w *pages) atRevision(h func(echo.Context, plans.Plan, url.Values, int64) error) func(echo.Context, url.Values) error {
	return func(c echo.Context, f url.Values) error {
		p, err := w.planOf(c)
		if err != nil {
			return err
		}
		revision, err := formRevision(f.Get("revision"))
		if err != nil {
			return err
		}
		return h(c, p, f, revision)
	}
}
