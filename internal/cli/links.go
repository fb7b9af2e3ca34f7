package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

type linksCommand struct {
	List   linksList   `cmd:"" help:"List shared links, without their addresses: headgate links list --tenant acme"`
	Get    linksGet    `cmd:"" help:"Show a shared link, without its address."`
	Create linksCreate `cmd:"" help:"Share a page and print the link once: headgate links create --name lobby --shows overview --query range=6h"`
	Revoke linksRevoke `cmd:"" help:"Revoke a shared link, so that it opens nothing: headgate links revoke 0190…"`
}

var linkColumns = []Column{
	{"ID", "id"},
	{"NAME", "name"},
	{"KIND", "kind"},
	{"SHOWS", "shows"},
	{"QUERY", "query"},
	{"CREATED BY", "created_by"},
	{"CREATED", "created_at"},
	{"EXPIRES", "expires_at"},
	{"LAST USED", "last_used_at"},
}

type linksList struct {
	Connection
	owner
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists shared links.
func (l linksList) Run(ctx context.Context, t Terminal) error {
	return l.ownRows(ctx, t, l.Connection, "shared-links", nil, l.Limit, linkColumns)
}

type linksGet struct {
	Connection
	owner
	ID string `arg:"" help:"The link's id, from headgate links list."`
}

// Run shows a shared link.
func (g linksGet) Run(ctx context.Context, t Terminal) error {
	return g.show(ctx, t, g.Connection, linkColumns, "shared-links", g.ID)
}

type linksCreate struct {
	writing
	owner
	Name     string        `required:"" setting:"false" help:"For the list of links."`
	Shows    string        `required:"" setting:"false" enum:"overview,traffic,denials" help:"The page: overview, traffic (the first page of a tenant) or denials."`
	Kind     string        `setting:"false" enum:"display,snapshot" default:"display" help:"display is the page with live updates, snapshot a copy of the page as it is now."`
	Query    string        `setting:"false" placeholder:"QUERY" help:"The parameters in the address of the page, like range=6h&policy=login. Default: the last hour."`
	TimeZone string        `setting:"false" placeholder:"ZONE" help:"The time zone of the page, like Europe/Berlin. Default: UTC."`
	Expires  time.Duration `setting:"false" help:"After how long it ends, like 168h. Default: a display after 30 days, a snapshot after 7."`
}

// Run creates a shared link. In the table format it prints only the address, so that a script can
// use the output.
func (n linksCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := object{"name": n.Name, "shows": n.Shows, "kind": n.Kind}
	body.set("query", n.Query)
	body.set("time_zone", n.TimeZone)
	if err := body.expires(n.Expires); err != nil {
		return err
	}
	a, sent, err := c.write(ctx, http.MethodPost, n.path("shared-links"), body, "")
	if err != nil || !sent {
		return err
	}
	if c.output.Format != "table" {
		return c.output.print(c.terminal, a.body, nil)
	}
	var made struct{ ID, Link string }
	if err := json.Unmarshal(a.body, &made); err != nil || made.Link == "" {
		return fmt.Errorf("the answer has no link: %w", err)
	}
	if strings.HasPrefix(made.Link, "/") { // the server has no setting HEADGATE_PUBLIC_URL
		made.Link = c.base + made.Link
	}
	t.say("shared link %s, shown once:", plain(made.ID))
	_, err = fmt.Fprintln(t.Stdout, made.Link)
	return err
}

type linksRevoke struct {
	writing
	owner
	ID string `arg:"" help:"The link's id, from headgate links list."`
}

// Run revokes a shared link.
func (r linksRevoke) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	_, sent, err := c.write(ctx, http.MethodDelete, r.path("shared-links", r.ID), nil, "")
	if sent {
		t.say("shared link %s is revoked", plain(r.ID))
	}
	return err
}
