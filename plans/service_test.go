package plans_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

func setUp(t *testing.T) (context.Context, *plans.Service, *store.Store) {
	t.Helper()
	ctx := audit.With(t.Context(), audit.Actor{Kind: "user", ID: "u1", Name: "Ada"}, audit.Origin{})
	st, err := store.Open(ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := st.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx, plans.NewService(st, plans.Config{}), st
}

func wantKind(t *testing.T, err error, k problem.Kind, code string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != k || code != "" && p.Code != code {
		t.Errorf("%v, want %v %s", err, k, code)
	}
}

func TestPlanLife(t *testing.T) {
	t.Parallel()
	ctx, s, st := setUp(t)
	made, err := s.CreatePlan(ctx, "starter", plans.Sample())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plans.Sample(), made.Draft); diff != "" || made.Published != 0 {
		t.Errorf("made %+v (-want +got):\n%s", made, diff)
	}
	if d, err := s.Diff(ctx, "starter"); err != nil || len(d.Added) != 4 || d.Published != 0 {
		t.Errorf("before the first version: %+v, %v", d, err)
	}
	_, _, err = s.Publish(ctx, "starter", plans.Publish{IfRevision: made.DraftRevision - 1})
	wantKind(t, err, problem.Stale, "")
	p, v, err := s.Publish(ctx, "starter", plans.Publish{IfRevision: made.DraftRevision})
	if err != nil || v.Number != 1 || p.Published != 1 || v.PublishedBy.Name != "Ada" {
		t.Fatalf("%+v, %+v, %v", p, v, err)
	}
	if r, err := s.ValidateDraft(ctx, made.ID); err != nil || len(r.Faults) != 0 || r.Charges != 2 ||
		!strings.Contains(r.Warnings[len(r.Warnings)-1].Message, "equal to the published") {
		t.Errorf("review %+v, %v", r, err)
	}

	draft := plans.Sample().Content()
	draft.Policies[0].Limits[0].Quota = 10
	_, err = s.SaveDraft(ctx, "starter", plans.New(draft), p.DraftRevision+1)
	wantKind(t, err, problem.Stale, "")
	_, err = s.SaveDraft(ctx, "starter", plans.New(plans.Content{}), p.DraftRevision)
	wantKind(t, err, problem.Invalid, "")
	_, err = s.SaveDraft(ctx, "nobody", plans.New(draft), p.DraftRevision)
	wantKind(t, err, problem.NotFound, "")
	p, err = s.SaveDraft(ctx, "starter", plans.New(draft), p.DraftRevision)
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.Diff(ctx, "starter")
	if err != nil || d.Published != 1 || len(d.Changed) != 1 || d.Changed[0].Fields[0].Field != "/limits/l1/quota" {
		t.Errorf("difference %+v, %v", d, err)
	}
	p, v, err = s.Publish(ctx, "starter", plans.Publish{IfRevision: p.DraftRevision})
	if err != nil || v.Number != 2 || p.Latest != 2 {
		t.Fatalf("%+v, %+v, %v", p, v, err)
	}
	p, v, err = s.PublishVersion(ctx, "starter", plans.PublishVersion{Number: 1})
	if err != nil || v.Number != 1 || p.Published != 1 || p.Latest != 2 || v.Document.Policies()[0].Limits[0].Quota != 5 {
		t.Fatalf("%+v, %+v, %v", p, v, err)
	}
	_, _, err = s.PublishVersion(ctx, "starter", plans.PublishVersion{Number: 3})
	wantKind(t, err, problem.NotFound, "")
	if got, err := s.Version(ctx, "starter", 2); err != nil || got.Document.Policies()[0].Limits[0].Quota != 10 {
		t.Errorf("%+v, %v", got, err)
	}
	if list, err := s.Versions(ctx, "starter", 0, 0); err != nil || len(list) != 2 || list[0].Number != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err := s.Plans(ctx, plans.Filter{}); err != nil || len(list) != 1 || list[0].Slug != "starter" {
		t.Errorf("%+v, %v", list, err)
	}

	tenant, err := tenants.NewService(st, tenants.Config{}).CreateTenant(ctx, "acme", tenants.Document{Name: "Acme", Plan: "starter"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = s.Plan(ctx, "starter"); err != nil || p.Tenants != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	wantKind(t, s.DeletePlan(ctx, "starter", p.Revision), problem.Conflict, "plan_in_use")
	if err := tenants.NewService(st, tenants.Config{}).DeleteTenant(ctx, "acme", tenant.Revision); err != nil {
		t.Fatal(err)
	}
	if p, err = s.Plan(ctx, "starter"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, s.DeletePlan(ctx, "starter", p.Revision-1), problem.Stale, "")
	if err := s.DeletePlan(ctx, "starter", p.Revision); err != nil {
		t.Fatal(err)
	}

	log, err := st.AuditEntries(ctx, audit.Filter{Object: made.ID, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range log {
		first := func(text []byte) string {
			_, rest, _ := strings.Cut(string(text), `"starter",`)
			return rest[:min(len(rest), 9)]
		}
		got = append(got, fmt.Sprintf("%s %s: %s → %s", e.Action, e.ObjectName, first(e.Before), first(e.After)))
	}
	want := []string{
		`plan.delete starter: "draft":{ → `,
		`plan.publish starter: "version" → "version"`,
		`plan.publish starter: "version" → "version"`,
		`plan.save_draft starter: "draft":{ → "draft":{`,
		`plan.publish starter:  → "version"`,
		`plan.create starter:  → "draft":{`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit log (-want +got):\n%s", diff)
	}
	if !strings.Contains(string(log[1].Before), `"version":2`) || !strings.Contains(string(log[1].After), `"version":1`) {
		t.Errorf("going back is audited as %s → %s", log[1].Before, log[1].After)
	}
}

func TestCreatePlanRefuses(t *testing.T) {
	t.Parallel()
	ctx, s, _ := setUp(t)
	if _, err := s.CreatePlan(ctx, "pro", plans.New(plans.Content{Name: "Pro"})); err != nil {
		t.Fatal(err)
	}
	_, err := s.CreatePlan(ctx, "pro", plans.New(plans.Content{Name: "Pro"}))
	wantKind(t, err, problem.Conflict, "slug_taken")
	var p *problem.Problem
	_, err = s.CreatePlan(ctx, "new", plans.New(plans.Content{Name: "New"}))
	wantKind(t, err, problem.Invalid, "")
	_, err = s.CreatePlan(ctx, "Pro", plans.New(plans.Content{Policies: []plans.Policy{{Slug: "a"}}}))
	if !errors.As(err, &p) || len(p.Fields) != 3 || p.Fields[0].Pointer != "/slug" || p.Fields[1].Pointer != "/name" || p.Fields[2].Pointer != "/policies/0/limits" {
		t.Errorf("%v", err)
	}
}

// A plan that could charge too much can be saved, and not published.
func TestPublishRefusesTooManyCharges(t *testing.T) {
	t.Parallel()
	ctx, s, _ := setUp(t)
	d := plans.Content{Name: "Pro"}
	for i := range 33 {
		d.Policies = append(d.Policies, plans.Policy{
			Slug:   fmt.Sprintf("p%d", i),
			Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: enforcement.MinWindow}},
		})
	}
	p, err := s.CreatePlan(ctx, "pro", plans.New(d))
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Publish(ctx, "pro", plans.Publish{IfRevision: p.DraftRevision})
	wantKind(t, err, problem.Invalid, "")
	if r, err := s.ValidateDraft(ctx, "pro"); err != nil || r.Charges != 33 || len(r.Faults) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if p, err = s.Plan(ctx, "pro"); err != nil || p.Published != 0 || p.Latest != 0 {
		t.Errorf("%+v, %v", p, err)
	}
}

// The audit log has each publication with its note, and each change of a draft.
func TestPublicationsInTheLog(t *testing.T) {
	t.Parallel()
	ctx, s, st := setUp(t)
	p, err := s.CreatePlan(ctx, "starter", plans.Sample())
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Publish(ctx, "starter", plans.Publish{IfRevision: p.DraftRevision, Note: strings.Repeat("é", plans.MaxNote+1)})
	wantKind(t, err, problem.Invalid, "")
	if _, _, err = s.Publish(ctx, "starter", plans.Publish{IfRevision: p.DraftRevision, Note: "  More room\r\nfor searches "}); err != nil {
		t.Fatal(err)
	}
	if _, _, err = s.PublishVersion(ctx, "starter", plans.PublishVersion{Number: 1, Note: "\a"}); !problem.Is(err, problem.Invalid) {
		t.Errorf("a bell: %v", err)
	}
	if _, _, err = s.PublishVersion(ctx, "starter", plans.PublishVersion{Number: 1}); err != nil {
		t.Fatal(err)
	}
	lines, err := st.AuditEntries(ctx, audit.Filter{Object: p.ID, Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range lines {
		if d, ok := plans.DraftOf(l); ok {
			got = append(got, fmt.Sprintf("draft %s at %v", d.Name(), l.Revision == p.DraftRevision))
		}
		if pub, ok := plans.PublicationOf(l); ok {
			got = append(got, fmt.Sprintf("%d %q by %s", pub.Version, pub.Note, pub.By.Name))
		}
	}
	if want := []string{`1 "" by Ada`, `1 "More room\nfor searches" by Ada`, "draft Starter at true"}; !cmp.Equal(got, want) {
		t.Errorf("the log has %q, want %q", got, want)
	}
}
