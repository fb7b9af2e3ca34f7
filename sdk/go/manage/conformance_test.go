//go:build conformance

package manage_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	headgate "github.com/headgate/headgate/sdk/go"
	"github.com/headgate/headgate/sdk/go/manage"
)

// A tenant's life, on a real server.
func TestManagement(t *testing.T) {
	client, err := headgate.New(headgate.Config{URL: os.Getenv("HEADGATE_URL"), Token: os.Getenv("HEADGATE_TOKEN")})
	if err != nil {
		t.Fatalf("%v: run this test with make test-sdk", err)
	}
	defer client.Close()
	m, ctx := manage.New(client), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	slug := "go-" + strconv.FormatUint(rand.Uint64(), 36)
	made, err := m.CreateTenant(ctx, manage.NewTenant{Slug: slug, Tenant: manage.NewTenantDocument{Name: "Go é"}})
	must(err)
	if made.ETag == "" || made.RequestID == "" || made.Data.Slug != slug {
		t.Errorf("%+v", made)
	}
	got, err := m.GetTenant(ctx, slug)
	must(err)
	if got.Data.Tenant.Name != "Go é" || got.ETag != made.ETag {
		t.Errorf("%+v", got)
	}
	changed, err := m.PatchTenant(ctx, slug, manage.TenantPatch{Plan: manage.Value("conformance")}, got.ETag)
	must(err)
	if changed.Data.Tenant.Plan == nil || *changed.Data.Tenant.Plan != "conformance" {
		t.Errorf("%+v", changed.Data.Tenant)
	}
	_, err = m.PatchTenant(ctx, slug, manage.TenantPatch{Plan: manage.Null[string]()}, got.ETag)
	var problem *headgate.ProblemError
	if !errors.As(err, &problem) || problem.Status != 412 || problem.RequestID == "" {
		t.Errorf("a stale ETag gives %v", err)
	}
	if _, err = m.GetTenant(ctx, "no/such?tenant"); !errors.As(err, &problem) || problem.Status != 400 && problem.Status != 404 {
		t.Errorf("%v", err)
	}
	two := int64(2)
	page, err := m.ListTenants(ctx, manage.ListTenantsParams{Limit: &two, Q: "go"})
	must(err)
	if len(page.Data.Data) == 0 {
		t.Errorf("%+v", page)
	}
	usage, err := m.GetUsage(ctx, slug, manage.GetUsageParams{Policy: "login-per-user", Key: map[string]string{"user": "u 1&"}})
	must(err)
	if len(usage.Data.Policies) != 1 {
		t.Errorf("%+v", usage.Data)
	}
	explained, err := m.Explain(ctx, manage.CheckRequest{Tenant: slug, Method: "POST", Path: "/v1/login", Attributes: manage.Attributes{"user": "u1"}})
	must(err)
	if explained.Data.Decision.Kind != "decision" || !explained.Data.Decision.Allowed {
		t.Errorf("%+v", explained.Data)
	}
	_, err = m.DeleteTenant(ctx, slug, changed.ETag)
	must(err)
}
