// Command contract makes ten calls with a client that oapi-codegen generates.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	ctx := context.Background()
	token := func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("HEADGATE_TOKEN"))
		return nil
	}
	c, err := NewClientWithResponses(os.Getenv("HEADGATE_URL"), WithRequestEditorFn(token))
	must("client", err, true, nil)
	slug := "oapi-" + strings.ToLower(rand.Text())
	tenant, plan, name := "conformance", "conformance", "oapi"
	method, path := "POST", "/v1/login"
	attributes, nine := Attributes{"user": slug}, int64(9)

	check, err := c.CheckWithResponse(ctx, nil, CheckJSONRequestBody{Tenant: &tenant, Method: &method, Path: &path, Attributes: &attributes})
	must("check", err, err == nil && check.JSON200 != nil && check.JSON200.Allowed, check)
	denied, err := c.CheckWithResponse(ctx, nil, CheckJSONRequestBody{Tenant: &tenant, Method: &method, Path: &path, Attributes: &attributes, Cost: &nine})
	must("denied", err, err == nil && denied.ApplicationproblemJSON429 != nil && denied.ApplicationproblemJSON429.RetryAfterMs == nil, denied)
	batch, err := c.CheckBatchWithResponse(ctx, nil, BatchRequest{Checks: []CheckRequest{{Tenant: &tenant, Method: &method, Path: &path}}})
	must("batch", err, err == nil && batch.JSON200 != nil && len(batch.JSON200.Results) == 1, batch)
	item, err := batch.JSON200.Results[0].AsBatchDecision()
	must("item of the batch", err, item.Allowed, item)
	made, err := c.CreateTenantWithResponse(ctx, nil, NewTenant{Slug: slug, Tenant: NewTenantDocument{Name: name}})
	must("create", err, err == nil && made.JSON201 != nil && made.JSON201.Slug == slug, made)
	got, err := c.GetTenantWithResponse(ctx, slug)
	must("get", err, err == nil && got.JSON200 != nil && got.JSON200.Tenant.Name == name, got)
	etag := got.HTTPResponse.Header.Get("ETag")
	put, err := c.UpdateTenantWithResponse(ctx, slug, &UpdateTenantParams{IfMatch: etag}, TenantDocument{Name: name, Plan: &plan})
	must("put", err, err == nil && put.JSON200 != nil && *put.JSON200.Tenant.Plan == plan, put)
	policy, key := "login-per-user", CountedKey{"user": "u1"}
	usage, err := c.GetUsageWithResponse(ctx, slug, &GetUsageParams{Policy: &policy, Key: &key})
	must("usage", err, err == nil && usage.JSON200 != nil && len(usage.JSON200.Policies) == 1, usage)
	one := 1
	list, err := c.ListTenantsWithResponse(ctx, &ListTenantsParams{Limit: &one})
	must("list", err, err == nil && list.JSON200 != nil && len(list.JSON200.Data) == 1, list)
	issued, err := c.CreateKeyWithResponse(ctx, slug, nil, NewKey{Name: "k", Scopes: []Scope{ScopeCheck}})
	must("key", err, err == nil && issued.JSON201 != nil && strings.HasPrefix(issued.JSON201.Token, "hg_"), issued)
	missing, err := c.GetTenantWithResponse(ctx, "nobody-has-this")
	must("missing", err, err == nil && missing.ApplicationproblemJSON404 != nil, missing)
	fmt.Println("oapi-codegen: ten calls")
}

func must(name string, err error, ok bool, got any) {
	if err != nil || !ok {
		log.Fatalf("%s: %v %+v", name, err, got)
	}
}
