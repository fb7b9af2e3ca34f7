package main

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/demo"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/preview"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// The plans of the demo were in force while its traffic was counted, so the preview of its
// draft has figures of every certainty at once.
func TestThePreviewOfTheDemoHasFigures(t *testing.T) {
	t.Parallel()
	ctx, now := t.Context(), time.Now()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := store.Open(ctx, store.Config{URL: fmt.Sprintf("sqlite://%s/headgate.db", t.TempDir()), Timeout: time.Minute})
	must(err)
	t.Cleanup(func() { must(s.Close()) })
	must(s.Migrate(ctx))
	of, drafts := tenants.NewService(s, tenants.Config{}), plans.NewService(s, plans.Config{})
	set := exceptions.NewService(s, of, drafts, exceptions.Config{})
	watcher := snapshot.NewWatcher(s, snapshot.Config{Logger: slog.New(slog.DiscardHandler)})
	clock := func() time.Time { return now }
	_, err = demo.NewService(s, of, drafts, set, demo.Config{Now: clock, History: 16 * time.Hour}).Fill(ctx, demo.Node{
		Snapshot: watcher.Current, Refresh: watcher.Refresh,
		NewLimiter: func(now func() int64) enforcement.Limiter { return inprocess.New(inprocess.Config{Now: now}) },
	})
	must(err)
	previews := preview.NewService(preview.Config{
		Plans: drafts, Tenants: of, Exceptions: set, Audit: s, Now: clock, Analytics: metrics.NewAnalytics(s, metrics.AnalyticsConfig{Now: clock}),
		NewLimiter: inProcessLimiter,
	})

	p, err := previews.Draft(ctx, "demo-pro", now.Add(-3*time.Hour), now)
	must(err)
	if p.Clipped != "" || p.Joined != 0 || p.Active != 1 || p.Requests < 1000 || p.Refused == 0 {
		t.Errorf("of the last hours: clipped %q, %d joined, %d active, %d requests, %d refused", p.Clipped, p.Joined, p.Active, p.Requests, p.Refused)
	}
	if r := p.Replay; r == nil || r.Requests < p.Requests/4 || r.Published == 0 || r.Draft == 0 || r.Tenants != 1 {
		t.Errorf("of %d requests the replay has %+v", p.Requests, r)
	}
	refused := map[preview.Certainty]int64{preview.Exact: 0, preview.Estimated: 0}
	asked, shadow := false, int64(0)
	for i := range p.Policies {
		of := &p.Policies[i]
		if of.Draft != nil {
			refused[of.Certainty] += of.Draft.Refused
		}
		if of.Shadow != nil {
			shadow += of.Shadow.Refused
		}
		asked = asked || of.Certainty == preview.NeedsShadow && of.Mode == enforcement.PolicyEnforce
	}
	if refused[preview.Exact] == 0 || refused[preview.Estimated] == 0 || shadow == 0 || !asked {
		t.Errorf("refused %v, %d in shadow, one needs shadow: %t", refused, shadow, asked)
	}
	// Old counts are stored by hour, which a preview cannot use. The preview therefore starts
	// later, at the first count by minute.
	if p, err = previews.Draft(ctx, "demo-pro", now.Add(-16*time.Hour), now); err != nil || p.Clipped == "" || !p.From.Equal(now.Add(-4*time.Hour).UTC().Truncate(time.Hour)) {
		t.Errorf("of the whole history: from %s, %q, error %v", p.From, p.Clipped, err)
	}
	for _, slug := range []string{"demo-free", "demo-enterprise"} {
		if p, err = previews.Draft(ctx, slug, now.Add(-3*time.Hour), now); err != nil || p.Clipped != "" || p.Requests < 1000 {
			t.Errorf("%s: %d requests, %q, error %v", slug, p.Requests, p.Clipped, err)
		}
	}
}
