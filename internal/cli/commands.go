package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"go.yaml.in/yaml/v3"
)

// Commands contains the commands that call an installation over its REST API.
type Commands struct {
	Check        checkCommand        `cmd:"" group:"remote" help:"Decide a check: headgate check POST /v1/login --tenant acme -a user=u1"`
	Explain      explainCommand      `cmd:"" group:"remote" help:"Explain how a check would be decided, and charge nothing: headgate explain POST /v1/login --tenant acme -a user=u1"`
	Refund       refundCommand       `cmd:"" group:"remote" help:"Give back what a refundable check charged: headgate refund 0190… --tenant acme"`
	Reservations reservationsCommand `cmd:"" group:"remote" help:"Make, list, show, settle, extend and give back the reservations of a tenant."`
	Top          topCommand          `cmd:"" group:"remote" help:"Rank tenants, policies, routes or keys by their denials: headgate top --by keys --tenant acme"`
	Tail         tailCommand         `cmd:"" group:"remote" help:"Print denials or all recorded decisions as they happen: headgate tail --tenant acme --outcome any"`
	Usage        usageCommand        `cmd:"" group:"remote" help:"Show what a tenant and its keys have left: headgate usage acme"`
	Tenants      tenantsCommand      `cmd:"" group:"remote" help:"List, create, change and delete tenants."`
	Plans        plansCommand        `cmd:"" group:"remote" help:"List, draft, publish and delete plans."`
	Keys         keysCommand         `cmd:"" group:"remote" help:"List, create, rotate and revoke the API keys of a tenant, or of the operator."`
	Leases       leasesCommand       `cmd:"" group:"remote" help:"List, release and revoke the leases of concurrency limits."`
	Overrides    overridesCommand    `cmd:"" group:"remote" help:"List, create, change and delete overrides of a tenant."`
	Grants       grantsCommand       `cmd:"" group:"remote" help:"List, create and void grants, which top up limits of a tenant."`
	Alerts       alertsCommand       `cmd:"" group:"remote" help:"List alerts; manage their rules, channels, messages and maintenance windows."`
	Links        linksCommand        `cmd:"" group:"remote" help:"List, create and revoke shared links, which open one page of the dashboard without signing in."`
	Export       exportCommand       `cmd:"" group:"remote" help:"Print plans, tenants, overrides and lists as YAML: headgate export > plans/all.yaml"`
	Diff         diffCommand         `cmd:"" group:"remote" help:"Compare files with an installation: headgate diff -f plans/"`
	Apply        applyCommand        `cmd:"" group:"remote" help:"Make an installation as files say, in one transaction: headgate apply -f plans/"`
	Import       importCommand       `cmd:"" group:"remote" help:"Convert rate limits of another product to a file for apply: headgate import nginx nginx.conf > plans/nginx.yaml"`
	Lists        listsCommand        `cmd:"" group:"remote" help:"List, add and delete entries of the deny list and the allow list of a tenant."`
}

// A writing has the flags of a command that changes something. With --dry-run, the command prints
// its request and sends nothing.
type writing struct {
	Connection
	DryRun bool `setting:"false" help:"Print the request, and send nothing that writes."`
}

// client returns a client that sends no changes if --dry-run is set.
func (w writing) client(t Terminal) (*client, error) {
	c, err := w.Connection.client(t)
	if err == nil {
		c.dryRun = w.DryRun
	}
	return c, err
}

// create sends a POST request with a body, and prints the created object as a table with the given
// columns.
func (c *client) create(ctx context.Context, path string, body any, columns ...Column) error {
	return c.change(ctx, http.MethodPost, path, body, "", columns...)
}

// change sends a request that changes the object at path. It prints the changed object.
func (c *client) change(ctx context.Context, method, path string, body any, ifMatch string, columns ...Column) error {
	a, sent, err := c.write(ctx, method, path, body, ifMatch)
	if err != nil || !sent {
		return err
	}
	return c.output.rows(c.terminal, a.body, "", columns...)
}

// remove sends a DELETE request, and prints that the object is deleted. what names the object
// in the message.
func (c *client) remove(ctx context.Context, path, ifMatch, what string) error {
	_, sent, err := c.write(ctx, http.MethodDelete, path, nil, ifMatch)
	if sent {
		c.terminal.say("%s is deleted", plain(what))
	}
	return err
}

// show reads an object and prints it as a table with the given columns.
func (c *client) show(ctx context.Context, path string, columns ...Column) error {
	a, err := c.get(ctx, path, nil)
	if err != nil {
		return err
	}
	return c.output.rows(c.terminal, a.body, "", columns...)
}

// confirmed returns an error if neither --yes nor --dry-run is set. what describes the change in
// the message, such as "deletes plan pro".
func confirmed(yes, dryRun bool, what string) error {
	if yes || dryRun {
		return nil
	}
	return usage("this %s, which cannot be undone: repeat the command with --yes", what)
}

// An object is the body of a request. Members without a value are left out.
type object map[string]any

// set adds a member, unless value is "".
func (o object) set(name, value string) {
	if value != "" {
		o[name] = value
	}
}

// expires adds the member expires_at with the time now plus after, unless after is 0.
func (o object) expires(after time.Duration) error {
	if after < 0 {
		return usage("--expires: is %s, and must be in the future", after)
	}
	if after > 0 {
		o["expires_at"] = time.Now().UTC().Add(after).Format(time.RFC3339)
	}
	return nil
}

// readDocument reads a JSON or YAML document from a file and returns it as JSON. If file is "-", it
// reads standard input.
func readDocument(t Terminal, file string) (json.RawMessage, error) {
	text, name, err := readInput(t, file)
	if err != nil {
		return nil, err
	}
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		return nil, &Error{ExitInvalid, fmt.Errorf("%s: %w", name, err)}
	}
	out, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{ExitInvalid, fmt.Errorf("%s: %w", name, err)}
	}
	return out, nil
}
