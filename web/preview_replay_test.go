package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// Issue 13, 1.3: the preview shows what single requests would get, folds the policies that do not
// change, and keeps its figures after a publication.
func TestPreviewReplaysAndFolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.furnish(t)
	page := w.get("/plans/pro/preview?range=6h", "editor")
	says(t, "preview", page, 200, []string{
		"Published against draft", "were decided again:", "denied as published", "Denied by the draft", "View as table", "2 policies do not change",
	})
	if !strings.Contains(page.body, "/chart.") {
		t.Error("the page does not load the script of charts")
	}
	rows, folded := 0, ""
	for n := range page.tree(t).Descendants() {
		if n.Data == "tr" && has(n, "data-x") {
			rows++
		}
		if n.Data == "details" && strings.Contains(text(n), "do not change") {
			folded = text(n)
		}
	}
	if rows < 10 || !strings.Contains(folded, "login-per-ip") || !strings.Contains(folded, "search") || strings.Contains(folded, "monthly") {
		t.Errorf("%d rows in the table of the chart; folded: %s", rows, folded)
	}
	strict(t, "preview with a replay", page.tree(t))

	// A new policy hides no total.
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	d := p.Draft.Content()
	d.Policies = append(d.Policies, plans.Policy{
		Slug: "fresh", CountBy: []string{"session"}, Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Second}},
	})
	p, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(d), p.DraftRevision)
	must(t, err)
	says(t, "with a new policy", w.get("/plans/pro/preview?range=6h", "editor"), 200, []string{"at least ", "without what fresh would deny"}, "an enforced policy of the draft needs shadow")

	_, _, err = w.plans.Publish(t.Context(), "pro", plans.Publish{IfRevision: p.DraftRevision})
	must(t, err)
	says(t, "after a publication", w.get("/plans/pro/preview", "editor"), 200, []string{"The last 24 hours, ", "came into force"}, "No tenant of this plan sent")
}

// Issue 13, 1.3: the pages of changes and of the publication list the trade-offs of changed policies
// only.
func TestTradeOffsOfChangedPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	limit := func(quota int64) []enforcement.Limit {
		return []enforcement.Limit{{Algorithm: enforcement.FixedWindow, Quota: quota, Window: time.Minute}}
	}
	document := plans.Content{Name: "Pro", Policies: []plans.Policy{{Slug: "old", Limits: limit(111)}, {Slug: "edited", Limits: limit(222)}}}
	w.publish("pro", document, "acme")
	p, err := w.plans.Plan(t.Context(), "pro")
	must(t, err)
	document.Policies[1].Limits[0].Quota = 333
	document.Policies = append(document.Policies, plans.Policy{Slug: "added", Limits: limit(444)})
	_, err = w.plans.SaveDraft(t.Context(), "pro", plans.New(document), p.DraftRevision)
	must(t, err)
	for _, path := range []string{"/plans/pro/diff", "/plans/pro/publish"} {
		says(t, path, w.get(path, "editor"), 200, []string{"up to 2 × 333 within", "up to 2 × 444 within"}, "up to 2 × 111 within")
	}
}
