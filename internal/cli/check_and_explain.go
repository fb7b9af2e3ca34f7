package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// A request has the flags that describe the request to check.
type request struct {
	Method     string            `arg:"" help:"Method of the request, such as POST."`
	Path       string            `arg:"" help:"Path of the request, such as /v1/login."`
	Tenant     string            `setting:"false" placeholder:"SLUG" help:"The tenant. A key of a tenant stands for its tenant."`
	Attributes map[string]string `name:"attribute" short:"a" setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute of the request; may be repeated."`
	Cost       *int64            `setting:"false" help:"How many units the request takes. Default: the cost of each policy, which is 1 unless it states another."`
}

func (r request) body(mode string) object {
	o := object{"method": r.Method, "path": r.Path}
	o.set("tenant", r.Tenant)
	o.set("mode", mode)
	if len(r.Attributes) > 0 {
		o["attributes"] = r.Attributes
	}
	if r.Cost != nil {
		o["cost"] = *r.Cost
	}
	return o
}

var limitColumns = []Column{
	{"POLICY", "policy"},
	{"LIMIT", "limit"},
	{"ALLOWED", "allowed"},
	{"QUOTA", "quota"},
	{"REMAINING", "remaining"},
	{"RESET", "reset_after_ms"},
	{"RETRY", "retry_after_ms"},
	{"NEAR", "near_limit"},
	{"MODE", "mode"},
}

type checkCommand struct {
	Connection
	request
	lease
	Mode   string `default:"enforce" enum:"enforce,peek,force,take_up_to" setting:"false" help:"enforce charges the limits, peek charges nothing, force charges without denying, take_up_to charges as much of the cost as is left."`
	DryRun bool   `setting:"false" help:"The same as --mode peek: charge nothing."`

	Refundable     bool   `setting:"false" help:"Keep what the check charges, so that headgate refund can give it back."`
	IdempotencyKey string `setting:"false" placeholder:"KEY" help:"A value of your own for this check. A repetition with it within 10 minutes gets the same decision and charges nothing."`
}

// Help returns the text that --help shows after the flags.
func (checkCommand) Help() string {
	return "Ends with 0 if the check passes, and with 10 if it is denied. The times RESET and RETRY are in seconds. " +
		"NEAR is the highest threshold of warn_at that is reached, in percent."
}

// Run sends the check and prints the decision.
func (k checkCommand) Run(ctx context.Context, t Terminal) error {
	c, err := k.client(t)
	if err != nil {
		return err
	}
	if k.DryRun {
		k.Mode = "peek"
	}
	c.idempotencyKey = k.IdempotencyKey
	body := k.body(k.Mode)
	if k.Refundable && k.Mode != "peek" {
		body["refundable"] = true
	}
	if err := k.addTo(body); err != nil {
		return err
	}
	a, err := c.send(ctx, http.MethodPost, path("check"), url.Values{"deny_status": {"200"}}, body, "")
	if err != nil {
		return err
	}
	return c.decision(a.body, "")
}

// decision prints a decision and its limits. at is the path of the decision in the JSON
// document, or "" if the document is the decision. If the decision is a denial, the error has
// the exit code ExitDenied.
func (c *client) decision(document []byte, at string) error {
	v, err := decode(document)
	if err != nil {
		return err
	}
	d := v
	if at != "" {
		d = lookUp(v, at)
	}
	err = c.output.print(c.terminal, document, func(w io.Writer) error {
		verdict := "denied"
		if lookUp(d, "allowed") == true {
			verdict = "allowed"
		}
		if lookUp(d, "replayed") == true {
			verdict += ", as before"
		}
		fmt.Fprintf(w, "%s: %s (tenant %s, plan %s)\n", verdict, cell(lookUp(d, "reason")), cell(lookUp(d, "tenant")), cell(lookUp(d, "plan")))
		if serve := lookUp(d, "serve"); serve != nil {
			fmt.Fprintf(w, "serve: %s\n", cell(serve))
		}
		if ms, ok := lookUp(d, "delay_ms").(json.Number); ok && ms != "0" {
			fmt.Fprintf(w, "wait: %s\n", duration(ms))
		}
		if taken := lookUp(d, "taken"); taken != nil {
			fmt.Fprintf(w, "taken: %s\n", cell(taken))
		}
		if until := lookUp(d, "refundable_until"); until != nil {
			fmt.Fprintf(w, "refundable until %s: headgate refund %s --tenant %s\n", cell(until),
				cell(lookUp(d, "decision_id")), cell(lookUp(d, "tenant")))
		}
		if ttl, ok := lookUp(d, "lease.ttl_ms").(json.Number); ok {
			fmt.Fprintf(w, "lease %s, for %s\n", cell(lookUp(d, "lease.id")), duration(ttl))
		}
		if v := lookUp(d, "reservation"); v != nil {
			fmt.Fprintf(w, "reservation %s, until %s\n", cell(lookUp(v, "id")), cell(lookUp(v, "expires_at")))
		}
		limits, _ := lookUp(d, "limits").([]any)
		if len(limits) == 0 {
			return nil
		}
		seconds(limits, "reset_after_ms", "retry_after_ms")
		return writeTable(w, limits, limitColumns)
	})
	if err != nil || lookUp(d, "allowed") == true {
		return err
	}
	retry := "waiting does not help"
	if ms, ok := lookUp(d, "retry_after_ms").(json.Number); ok {
		retry = "retry in " + duration(ms)
	}
	return &Error{ExitDenied, fmt.Errorf("denied: %s; %s", cell(lookUp(d, "reason")), retry)}
}

// seconds changes the members with the given names in all rows: it replaces a number of
// milliseconds with a duration, such as 1.5s.
func seconds(rows []any, names ...string) {
	for _, row := range rows {
		o, _ := row.(map[string]any)
		for _, name := range names {
			if ms, ok := o[name].(json.Number); ok {
				o[name] = duration(ms)
			}
		}
	}
}

// duration formats a number of milliseconds as a duration, such as 1.5s.
func duration(ms json.Number) string {
	n, err := ms.Int64()
	if err != nil {
		return ms.String()
	}
	return (time.Duration(n) * time.Millisecond).String()
}

type explainCommand struct {
	Connection
	Method     string            `arg:"" optional:"" help:"Method of the request, such as POST."`
	Path       string            `arg:"" optional:"" help:"Path of the request, such as /v1/login."`
	Decision   string            `setting:"false" placeholder:"ID" help:"Explain this recorded denial instead."`
	Tenant     string            `setting:"false" placeholder:"SLUG" help:"The tenant. A key of a tenant stands for its tenant."`
	Attributes map[string]string `name:"attribute" short:"a" setting:"false" mapsep:"none" placeholder:"NAME=VALUE" help:"An attribute of the request; may be repeated."`
	Cost       *int64            `setting:"false" help:"How many units the request takes. Default: 1."`
}

// Help returns the text that --help shows after the flags.
func (explainCommand) Help() string {
	return "Shows which policies match, which do not and why, and what each limit holds now. Ends with 10 if the check would be denied."
}

// Run explains the check that the flags describe, or a stored denial.
func (e explainCommand) Run(ctx context.Context, t Terminal) error {
	c, err := e.client(t)
	if err != nil {
		return err
	}
	if e.Decision != "" {
		if e.Method != "" {
			return usage("give either a method and a path, or --decision")
		}
		a, err := c.get(ctx, path("explain", e.Decision), nil)
		if err != nil {
			return err
		}
		return c.output.rows(t, a.body, "", Column{"AT", "at"}, Column{"TENANT", "tenant"}, Column{"ROUTE", "route"},
			Column{"REASON", "reason"}, Column{"POLICY", "policy"}, Column{"LIMIT", "limit"})
	}
	if e.Method == "" || e.Path == "" {
		return usage("give a method and a path, or --decision")
	}
	r := request{Method: e.Method, Path: e.Path, Tenant: e.Tenant, Attributes: e.Attributes, Cost: e.Cost}
	a, err := c.send(ctx, http.MethodPost, path("explain"), nil, r.body(""), "")
	if err != nil {
		return err
	}
	denied := c.decision(a.body, "decision")
	if c.output.Format != "table" {
		return denied
	}
	err = c.output.rows(t, a.body, "policies", Column{"POLICY", "policy"}, Column{"APPLIES", "applies"}, Column{"WHY", "detail"})
	if err != nil {
		return err
	}
	return denied
}
