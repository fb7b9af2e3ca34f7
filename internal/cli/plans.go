package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

type plansCommand struct {
	List     plansList     `cmd:"" help:"List plans."`
	Get      plansGet      `cmd:"" help:"Show the document of a plan: headgate plans get pro -o yaml"`
	Create   plansCreate   `cmd:"" help:"Create a plan with a draft: headgate plans create pro -f pro.yaml"`
	Save     plansSave     `cmd:"" help:"Replace the draft of a plan: headgate plans save pro -f pro.yaml"`
	Validate plansValidate `cmd:"" help:"Check whether the draft of a plan can be published."`
	Diff     plansDiff     `cmd:"" help:"Compare the draft of a plan with the published version. Ends with 11 if they differ."`
	Publish  plansPublish  `cmd:"" help:"Publish the draft of a plan, or an earlier version: headgate plans publish pro --version 3"`
	Versions plansVersions `cmd:"" help:"List the versions of a plan."`
	Delete   plansDelete   `cmd:"" help:"Delete a plan that no tenant is on: headgate plans delete old --yes"`
}

var planColumns = []Column{
	{"SLUG", "slug"}, {"NAME", "name"}, {"VERSION", "published_version"}, {"TENANTS", "tenants"}, {"UPDATED", "updated_at"},
}

type plansList struct {
	Connection
	Query string `setting:"false" help:"Part of the slug or the name."`
	Limit int    `setting:"false" help:"How many rows. Default: all."`
}

// Run lists plans.
func (l plansList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, path("plans"), map[string]string{"q": l.Query}, l.Limit, planColumns)
}

// planNamed has the argument that names a plan.
type planNamed struct {
	Plan string `arg:"" help:"Slug of the plan."`
}

type plansGet struct {
	Connection
	planNamed
	Version int  `setting:"false" help:"This version. Default: the version in force."`
	Draft   bool `setting:"false" help:"The draft."`
}

// Run prints the draft or a version of a plan.
func (g plansGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	if g.Draft && g.Version != 0 {
		return usage("--draft and --version exclude each other")
	}
	at, member := path("plans", g.Plan, "draft"), "draft"
	if !g.Draft {
		version := g.Version
		if version == 0 {
			if version, err = c.published(ctx, g.Plan); err != nil {
				return err
			}
		}
		at, member = path("plans", g.Plan, "versions", strconv.Itoa(version)), "document"
	}
	a, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	var is map[string]json.RawMessage
	if err := json.Unmarshal(a.body, &is); err != nil {
		return fmt.Errorf("read plan %s: %w", g.Plan, err)
	}
	return c.output.rows(t, is[member], "policies", Column{"POLICY", "slug"}, Column{"MODE", "mode"}, Column{"PATH", "match.path"},
		Column{"COUNT BY", "count_by"}, Column{"LIMITS", "limits"})
}

// published returns the number of the plan's current version.
func (c *client) published(ctx context.Context, plan string) (int, error) {
	a, err := c.get(ctx, path("plans", plan), nil)
	if err != nil {
		return 0, err
	}
	var is struct {
		Published int `json:"published_version"`
	}
	if err := json.Unmarshal(a.body, &is); err != nil {
		return 0, fmt.Errorf("read plan %s: %w", plan, err)
	}
	if is.Published == 0 {
		return 0, &Error{ExitNotFound, fmt.Errorf("plan %s has no published version: use --draft", plan)}
	}
	return is.Published, nil
}

// planFile has the arguments that name a plan and a file with its document.
type planFile struct {
	planNamed
	File string `required:"" short:"f" setting:"false" placeholder:"FILE" help:"Document of the plan, as YAML or JSON; - reads standard input."`
}

// open reads the document, and returns it with a client for the installation.
func (f planFile) open(t Terminal, w writing) (*client, json.RawMessage, error) {
	c, err := w.client(t)
	if err != nil {
		return nil, nil, err
	}
	document, err := readDocument(t, f.File)
	return c, document, err
}

type plansCreate struct {
	writing
	planFile
}

// Run creates a plan.
func (n plansCreate) Run(ctx context.Context, t Terminal) error {
	c, document, err := n.open(t, n.writing)
	if err != nil {
		return err
	}
	return c.create(ctx, path("plans"), object{"slug": n.Plan, "draft": document}, planColumns...)
}

type plansSave struct {
	writing
	planFile
}

// Run replaces the draft of a plan.
func (s plansSave) Run(ctx context.Context, t Terminal) error {
	c, document, err := s.open(t, s.writing)
	if err != nil {
		return err
	}
	at := path("plans", s.Plan, "draft")
	before, err := c.get(ctx, at, nil)
	if err != nil {
		return err
	}
	a, sent, err := c.write(ctx, http.MethodPut, at, document, before.header.Get("ETag"))
	if err != nil || !sent {
		return err
	}
	return c.output.rows(t, a.body, "", Column{"SLUG", "slug"}, Column{"DRAFT REVISION", "revision"})
}

type plansValidate struct {
	Connection
	planNamed
}

// Run validates the draft of a plan. If it has faults, the exit code is ExitInvalid.
func (v plansValidate) Run(ctx context.Context, t Terminal) error {
	c, err := v.client(t)
	if err != nil {
		return err
	}
	a, err := c.send(ctx, http.MethodPost, path("plans", v.Plan, "draft", "validate"), nil, nil, "")
	if err != nil {
		return err
	}
	var is struct {
		Valid            bool
		Errors, Warnings []fault
	}
	if err := json.Unmarshal(a.body, &is); err != nil {
		return fmt.Errorf("read the validation: %w", err)
	}
	err = c.output.print(t, a.body, func(w io.Writer) error {
		fmt.Fprintln(w, "KIND\tFIELD\tDETAIL")
		for _, f := range is.Errors {
			fmt.Fprintf(w, "error\t%s\t%s\n", plain(f.Pointer), plain(f.Detail))
		}
		for _, f := range is.Warnings {
			fmt.Fprintf(w, "warning\t%s\t%s\n", plain(f.Pointer), plain(f.Detail))
		}
		return nil
	})
	if err == nil && !is.Valid {
		err = &Error{ExitInvalid, fmt.Errorf("the draft of plan %s cannot be published", v.Plan)}
	}
	return err
}

type plansDiff struct {
	Connection
	planNamed
}

// Run compares the draft with the published version.
func (d plansDiff) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	a, err := c.get(ctx, path("plans", d.Plan, "diff"), nil)
	if err != nil {
		return err
	}
	var is struct{ Changes []json.RawMessage }
	if err := json.Unmarshal(a.body, &is); err != nil {
		return fmt.Errorf("read the differences: %w", err)
	}
	err = c.output.rows(t, a.body, "changes", Column{"KIND", "kind"}, Column{"FIELD", "pointer"}, Column{"BEFORE", "before"},
		Column{"AFTER", "after"})
	if err == nil && len(is.Changes) > 0 {
		err = &Error{ExitDifferences, fmt.Errorf("the draft of plan %s has %d changes", d.Plan, len(is.Changes))}
	}
	return err
}

type plansPublish struct {
	writing
	planNamed
	Version int `setting:"false" help:"Put this earlier version in force. Default: publish the draft."`
}

// Run publishes the draft, or makes an earlier version current again.
func (p plansPublish) Run(ctx context.Context, t Terminal) error {
	c, err := p.client(t)
	if err != nil {
		return err
	}
	body := object{}
	if p.Version != 0 {
		body["version"] = p.Version
	}
	return c.create(ctx, path("plans", p.Plan, "publish"), body, Column{"PLAN", "plan"}, Column{"VERSION", "version"},
		Column{"PUBLISHED", "published_at"})
}

type plansVersions struct {
	Connection
	planNamed
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists versions.
func (v plansVersions) Run(ctx context.Context, t Terminal) error {
	return v.rows(ctx, t, path("plans", v.Plan, "versions"), nil, v.Limit, []Column{
		{"VERSION", "version"}, {"CURRENT", "current"}, {"PUBLISHED", "published_at"}, {"BY", "published_by.name"},
	})
}

type plansDelete struct {
	writing
	planNamed
	Yes bool `setting:"false" help:"Delete it. It cannot be undone."`
}

// Run deletes a plan.
func (d plansDelete) Run(ctx context.Context, t Terminal) error {
	c, err := d.client(t)
	if err != nil {
		return err
	}
	if err := confirmed(d.Yes, d.DryRun, "deletes plan "+d.Plan+" with its versions"); err != nil {
		return err
	}
	return c.removeRead(ctx, path("plans", d.Plan), "plan "+d.Plan)
}
