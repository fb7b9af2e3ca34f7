// Package plans serves the pages of plans: the list, the editor of drafts,
// preview, publishing and history. It also serves the playground, which plays
// traffic against limits on a simulated clock.
package plans

import (
	"context"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/nodes"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
)

// Config of the pages. Every field is needed.
type Config struct {
	Plans *plans.Service
	// Preview computes what a draft would do. Nodes reports which revision each
	// node has in force. Audit is the log.
	Preview *preview.Service
	Nodes   *nodes.Service
	Audit   audit.Store
	// Simulate plays one scenario.
	Simulate func(ctx context.Context, scenario []byte) ([]byte, error)
}

type pages struct {
	*web.Shell
	cfg Config
}

// Routes returns the rows of the pages.
func Routes(shell *web.Shell, cfg Config) []web.Route {
	const read, write, simulate = accounts.PlansRead, accounts.PlansWrite, accounts.Simulate
	const plan, version = "/plans/:plan", "/plans/:plan/versions/:version"
	w := &pages{Shell: shell, cfg: cfg}
	return []web.Route{
		web.Get("/plans", read, w.listPlans),
		web.Get("/plans/new", write, w.newPlanForm),
		web.Post("/plans/new", write, w.createPlan),
		web.Get(plan, read, w.showPlan),
		web.Post(plan+"/delete", write, w.deletePlan),
		web.Get(plan+"/edit", write, w.editDraft),
		web.Post(plan+"/edit", write, w.postDraft),
		web.Get(plan+"/edit/json", write, w.editDraftText),
		web.Post(plan+"/edit/json", write, w.postDraftText),
		web.Get(plan+"/diff", read, w.diffPlan),
		web.Get(plan+"/publish", write, w.publishForm),
		web.Post(plan+"/publish", write, w.publishPlan),
		web.Get(plan+"/rollout", read, w.rollout),
		web.Get(plan+"/history", read, w.planHistory),
		web.Get(plan+"/preview", read, w.previewPlan).As(web.SlowExpensive),
		web.Post(plan+"/preview/shadow", write, w.shadowPolicy),
		web.Get(version, read, w.planVersion),
		web.Get(version+"/publish", write, w.rollbackForm),
		web.Post(version+"/publish", write, w.rollBack),
		web.Post(version+"/copy", write, w.copyVersion),

		web.Get("/playground", simulate, w.playground).As(web.Expensive),
		web.Get("/playground/scenarios", simulate, w.playedScenarios).As(web.Expensive),
	}
}
