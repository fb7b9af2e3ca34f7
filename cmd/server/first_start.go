package main

import (
	"context"
	"fmt"
	"io"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// credentials holds the secrets that a first start creates and prints once.
type credentials struct {
	operator string // token of the new operator key; empty if HEADGATE_BOOTSTRAP_KEY is set
	tenant   string // token of the sample tenant's API key; the next field is the tenant's slug
	slug     string
	demo     bool   // the process runs headgate demo
	setup    string // token of the link with which the first owner sets a password; set at every start until an owner exists
}

// sampleTenant is the slug of the tenant that a first start on SQLite creates.
const sampleTenant = "demo"

// makeSample creates the plan starter, the tenant demo, and an API key of this tenant in an empty
// database. With these, the curl command that the server prints works at once. If operatorKey is
// true, makeSample also creates an operator key.
func makeSample(ctx context.Context, p *plans.Service, t *tenants.Service, operatorKey bool) (credentials, error) {
	ctx = audit.With(ctx, audit.Actor{Kind: "command", ID: "first start", Name: "first start"}, audit.Origin{})
	var made credentials
	plan, err := p.CreatePlan(ctx, plans.SampleSlug, plans.Sample())
	if err != nil {
		return made, fmt.Errorf("create the sample plan: %w", err)
	}
	if _, _, err := p.Publish(ctx, plan.ID, plans.Publish{IfRevision: plan.DraftRevision}); err != nil {
		return made, fmt.Errorf("publish the sample plan: %w", err)
	}
	made.slug = sampleTenant
	tenant, err := t.CreateTenant(ctx, sampleTenant, tenants.Document{Name: "Demo", Plan: plans.SampleSlug})
	if err != nil {
		return made, fmt.Errorf("create the sample tenant: %w", err)
	}
	_, made.tenant, err = t.CreateKey(ctx, tenant.ID, tenants.NewKey{
		Name: "first start", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead},
	})
	if err != nil {
		return made, fmt.Errorf("create the sample tenant's key: %w", err)
	}
	if operatorKey {
		_, made.operator, err = t.CreateOperatorKey(ctx, tenants.NewKey{
			Name: "first start", Scopes: []tenants.Scope{tenants.ScopeCheck, tenants.ScopeRead, tenants.ScopeManage},
		})
		if err != nil {
			return made, fmt.Errorf("create the operator key: %w", err)
		}
	}
	return made, nil
}

// greet prints the address of the node and the first steps to standard output. It also prints the
// secrets that this start has created, which are in made. Secrets are never written to the log.
// keyless is set if no operator key exists.
func greet(w io.Writer, origin string, made credentials, keyless bool) {
	fmt.Fprintf(w, "\nHeadgate %s serves %s\n\n", version, origin)
	key := made.tenant
	switch {
	case made.tenant != "":
		operator := made.operator
		switch {
		case operator != "":
		case keyless:
			operator = "none yet: headgate key create --name first"
		case made.slug != sampleTenant:
			operator = "an existing one"
		default:
			operator = "the one in HEADGATE_BOOTSTRAP_KEY"
		}
		fmt.Fprintf(w, "  operator key  %s\n  tenant key    %s  (tenant %s)\n\nThese keys are shown once: only their hashes are kept.\n",
			operator, made.tenant, made.slug)
	case keyless:
		fmt.Fprint(w, "Make an operator key with: headgate key create --name first\n")
	}
	if made.demo {
		fmt.Fprint(w, "\nThis is a demo: its tenants, plans and traffic are made up. headgate demo --reset deletes it and starts over.\n")
	}
	if made.setup != "" {
		fmt.Fprintf(w, "\nSet up the first owner, once, within a day:\n\n  %s/setup/%s\n\n", origin, made.setup)
	}
	if key == "" {
		key = "$HEADGATE_TOKEN"
		fmt.Fprint(w, "Send a check with a tenant's key in $HEADGATE_TOKEN:\n\n")
	} else {
		fmt.Fprint(w, "Run this six times. The sixth check is denied:\n\n")
	}
	fmt.Fprintf(w, `  curl -i %s/v1/check \
    -H "Authorization: Bearer %s" \
    -H "Content-Type: application/json" \
    -d '{"method": "POST", "path": "/v1/login", "attributes": {"ip": "203.0.113.9"}}'

API reference: %[1]s/docs

`, origin, key)
}
