package cli

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

type leasesCommand struct {
	List    leasesList    `cmd:"" help:"List who holds the places of a concurrency limit: headgate leases list acme --policy jobs --key user=u1"`
	Release leasesRelease `cmd:"" help:"Release a lease as its holder: headgate leases release job-42 POST /v1/jobs --tenant acme -a user=u1"`
	Revoke  leasesRevoke  `cmd:"" help:"End a lease of a holder that hangs: headgate leases revoke acme job-42 --policy jobs --key user=u1 --reason 'the worker hangs' --yes"`
}

// A countedKey has the flags that select a key of a policy.
type countedKey struct {
	Policy string            `required:"" setting:"false" placeholder:"SLUG" help:"The policy of the tenant's plan."`
	Key    map[string]string `setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"A value that the policy counts by; may be repeated."`
}

type leasesList struct {
	Connection
	ofTenant
	countedKey
}

// Run lists leases.
func (l leasesList) Run(ctx context.Context, t Terminal) error {
	c, err := l.client(t)
	if err != nil {
		return err
	}
	query := url.Values{"policy": {l.Policy}}
	for name, value := range l.Key {
		query.Set("key["+name+"]", value)
	}
	a, err := c.get(ctx, path("tenants", l.Tenant, "leases"), query)
	if err != nil {
		return err
	}
	return c.output.rows(c.terminal, a.body, "leases",
		Column{"LEASE", "id"}, Column{"LIMIT", "limit"}, Column{"PLACES", "places"}, Column{"EXPIRES", "expires_at"})
}

var releasedColumns = []Column{{"TENANT", "tenant"}, {"LEASE", "lease.id"}, {"RELEASED", "released"}}

type leasesRelease struct {
	writing
	Lease      string            `arg:"" help:"The id of the lease, which is that of the decision if the check stated none."`
	Method     string            `arg:"" help:"Method of the request, such as POST."`
	Path       string            `arg:"" help:"Path of the request, such as /v1/jobs."`
	Tenant     string            `setting:"false" placeholder:"SLUG" help:"The tenant. A key of a tenant stands for its tenant."`
	Attributes map[string]string `name:"attribute" short:"a" setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute of the request; may be repeated."`
}

// Run releases a lease.
func (r leasesRelease) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	body := request{Method: r.Method, Path: r.Path, Tenant: r.Tenant, Attributes: r.Attributes}.body("")
	body["lease"] = object{"id": r.Lease}
	return c.released(ctx, path("leases", "release"), body)
}

type leasesRevoke struct {
	writing
	ofTenant
	Lease string `arg:"" help:"The id of the lease, from headgate leases list."`
	countedKey
	Reason string `setting:"false" help:"Why, for the audit log."`
	Yes    bool   `setting:"false" help:"Do it without a question."`
}

// Run revokes a lease.
func (r leasesRevoke) Run(ctx context.Context, t Terminal) error {
	if !r.Yes && !r.DryRun {
		return usage("this ends lease %s, whose holder is not told: repeat the command with --yes", r.Lease)
	}
	c, err := r.client(t)
	if err != nil {
		return err
	}
	key := r.Key
	if key == nil {
		key = map[string]string{}
	}
	body := object{"policy": r.Policy, "key": key, "lease": object{"id": r.Lease}}
	body.set("reason", r.Reason)
	return c.released(ctx, path("tenants", r.Tenant, "leases", "revoke"), body)
}

// released sends the request that ends a lease and prints the result.
func (c *client) released(ctx context.Context, path string, body object) error {
	a, sent, err := c.write(ctx, http.MethodPost, path, body, "")
	if err != nil || !sent {
		return err
	}
	return c.output.rows(c.terminal, a.body, "", releasedColumns...)
}

// A lease has the flags of the check command that set the lease.
type lease struct {
	Lease    string        `setting:"false" placeholder:"ID" help:"The lease that holds places of concurrency limits. Default: the id of the decision."`
	LeaseTTL time.Duration `setting:"false" placeholder:"30s" help:"The time to live of the lease. Default: the window of each concurrency limit."`
}

// addTo adds the lease to the body of a check.
func (l lease) addTo(body object) error {
	o := object{}
	o.set("id", l.Lease)
	if l.LeaseTTL != 0 {
		if l.LeaseTTL < time.Millisecond {
			return usage("--lease-ttl: is %s, and must be at least 1ms", l.LeaseTTL)
		}
		o["ttl_ms"] = l.LeaseTTL.Milliseconds()
	}
	if len(o) > 0 {
		body["lease"] = o
	}
	return nil
}
