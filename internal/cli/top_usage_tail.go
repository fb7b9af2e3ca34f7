package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"
)

type topCommand struct {
	Connection
	By     string        `default:"tenants" enum:"tenants,policies,routes,keys" setting:"false" help:"What to rank: tenants, policies, routes or keys."`
	Tenant string        `setting:"false" placeholder:"SLUG" help:"Only this tenant. policies, routes and keys need it with a key of the operator."`
	Since  time.Duration `default:"1h" setting:"false" help:"How far back to count."`
	Limit  int           `default:"20" setting:"false" help:"How many rows, at most 100."`
}

// Run prints the ranking of tenants, routes, policies or keys.
func (o topCommand) Run(ctx context.Context, t Terminal) error {
	c, err := o.client(t)
	if err != nil {
		return err
	}
	if o.Since <= 0 {
		return usage("--since: must be more than 0")
	}
	now := time.Now().UTC()
	query := url.Values{"from": {instant(now.Add(-o.Since))}, "to": {instant(now.Add(time.Minute))}, "limit": {fmt.Sprint(o.Limit)}}
	if o.Tenant != "" {
		if o.By == "tenants" {
			return usage("--tenant goes with --by policies, routes or keys")
		}
		query.Set("tenant", o.Tenant)
	}
	a, err := c.get(ctx, path("analytics", o.By), query)
	if err != nil {
		return err
	}
	counts := []Column{{"REQUESTS", "counts.requests"}, {"ALLOWED", "counts.allowed"}, {"LIMITED", "counts.limited"}}
	columns := append([]Column{{"TENANT", "tenant"}}, counts...)
	switch o.By {
	case "policies":
		columns = append([]Column{{"POLICY", "policy"}}, counts...)
	case "routes":
		columns = append([]Column{{"ROUTE", "route"}}, counts...)
	case "keys":
		columns = []Column{{"TENANT", "tenant"}, {"POLICY", "policy"}, {"KEY", "key"}, {"LIMITED", "count"}}
	}
	return c.output.rows(t, a.body, o.By, columns...)
}

func instant(at time.Time) string { return at.UTC().Truncate(time.Second).Format(time.RFC3339) }

type usageCommand struct {
	Connection
	Tenant string            `arg:"" help:"Slug of the tenant."`
	Policy string            `setting:"false" placeholder:"SLUG" help:"Only this policy."`
	Key    map[string]string `setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"Only this key of the policy; may be repeated."`
}

// Run prints the usage.
func (u usageCommand) Run(ctx context.Context, t Terminal) error {
	c, err := u.client(t)
	if err != nil {
		return err
	}
	query := url.Values{}
	if u.Policy != "" {
		query.Set("policy", u.Policy)
	}
	for name, value := range u.Key {
		query.Set("key["+name+"]", value)
	}
	a, err := c.get(ctx, path("tenants", u.Tenant, "usage"), query)
	if err != nil {
		return err
	}
	return c.output.print(t, a.body, func(w io.Writer) error {
		v, err := decode(a.body)
		if err != nil {
			return err
		}
		return writeTable(w, usedLimits(v), []Column{
			{"POLICY", "policy"},
			{"KEY", "key"},
			{"LIMIT", "limit"},
			{"QUOTA", "quota"},
			{"USED", "used"},
			{"REMAINING", "remaining"},
			{"RESET", "reset_after_ms"},
		})
	})
}

// usedLimits returns the rows of the table: one for each limit of each key in a usage.
func usedLimits(v any) []any {
	var rows []any
	policies, _ := lookUp(v, "policies").([]any)
	for _, p := range policies {
		keys, _ := lookUp(p, "keys").([]any)
		for _, k := range keys {
			limits, _ := lookUp(k, "limits").([]any)
			seconds(limits, "reset_after_ms")
			for _, l := range limits {
				if row, ok := l.(map[string]any); ok {
					row["policy"], row["key"] = lookUp(p, "policy"), lookUp(k, "key")
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

type tailCommand struct {
	Connection
	Tenant   string        `setting:"false" placeholder:"SLUG" help:"Only decisions of this tenant."`
	Policy   string        `setting:"false" placeholder:"SLUG" help:"Only denials by this policy, and allowed requests to which it applied."`
	Route    string        `setting:"false" help:"Only decisions on this route."`
	Reason   string        `setting:"false" help:"Only decisions with this reason, such as over_limit."`
	Outcome  string        `setting:"false" enum:"denied,allowed,any" default:"denied" help:"denied, allowed, or any."`
	Degraded bool          `setting:"false" help:"Only decisions of failure modes, because Redis did not answer."`
	Since    time.Duration `default:"0s" setting:"false" help:"Begin with the decisions of this time before now."`
	Follow   bool          `default:"true" negatable:"" setting:"false" help:"Wait for further decisions."`
}

// Help returns the text that --help shows after the flags.
func (tailCommand) Help() string {
	return "A decision appears about two seconds after it was made. Of a tenant with very many denials, the server records a sample. " +
		"Of allowed requests, it records one in sample_allowed, a field of the tenant. " +
		"With -o json, each decision is one line; with -o yaml, each is one document."
}

// overlap is the maximum time between a denial and its storage. Because of this delay, denials are
// not stored in the order of their times. Therefore each request of tail asks again for the last 30
// s. tail does not print a denial twice.
const overlap = 30 * time.Second

// Run prints new denials until ctx ends.
func (l tailCommand) Run(ctx context.Context, t Terminal) error {
	c, err := l.client(t)
	if err != nil {
		return err
	}
	begin := time.Now().Add(-l.Since)
	seen := map[string]time.Time{}
	for {
		from := begin
		if late := time.Now().Add(-overlap); late.After(from) && len(seen) > 0 {
			from = late
		}
		denials, err := l.read(ctx, c, from)
		if err == nil {
			err = l.printUnseen(c, denials, begin, seen)
		}
		if errors.Is(err, context.Canceled) {
			return nil // the user ended it
		}
		if err != nil || !l.Follow {
			return err
		}
		for id, at := range seen {
			if at.Before(from.Add(-overlap)) {
				delete(seen, id)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// read returns the denials from the time from on, newest first.
func (l tailCommand) read(ctx context.Context, c *client, from time.Time) ([]json.RawMessage, error) {
	query := url.Values{"from": {instant(from)}}
	for name, value := range map[string]string{"tenant": l.Tenant, "policy": l.Policy, "route": l.Route, "reason": l.Reason} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if l.Outcome != "denied" { // "denied" is the default of the server, and a server of an earlier release rejects the parameter
		query.Set("outcome", l.Outcome)
	}
	if l.Degraded {
		query.Set("degraded", "true")
	}
	document, err := c.list(ctx, path("analytics", "refusals"), query, 1000)
	if err != nil {
		return nil, err
	}
	var page struct{ Data []json.RawMessage }
	return page.Data, json.Unmarshal(document, &page)
}

// printUnseen prints the denials whose IDs are not in seen, oldest first, and adds their IDs to
// seen.
func (l tailCommand) printUnseen(c *client, denials []json.RawMessage, begin time.Time, seen map[string]time.Time) error {
	out := c.output.Lines(c.terminal, denialRow)
	for _, denial := range slices.Backward(denials) {
		var is struct {
			ID string    `json:"decision_id"`
			At time.Time `json:"at"`
		}
		if err := json.Unmarshal(denial, &is); err != nil {
			return fmt.Errorf("read a denial: %w", err)
		}
		if _, printed := seen[is.ID]; printed || is.At.Before(begin.Truncate(time.Second)) {
			continue
		}
		seen[is.ID] = is.At
		var line bytes.Buffer
		if err := json.Compact(&line, denial); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, line.String()); err != nil {
			return err
		}
	}
	return nil
}

// denialRow returns a line of text about a denial.
func denialRow(denial json.RawMessage) (string, error) {
	v, err := decode(denial)
	if err != nil {
		return "", err
	}
	is := func(member string) string { return cell(lookUp(v, member)) }
	return fmt.Sprintf("%s  %s  %s %s  %s  %s  %s",
		is("at"), is("tenant"), is("method"), is("route"), is("reason"), is("policy"), is("attributes")), nil
}
