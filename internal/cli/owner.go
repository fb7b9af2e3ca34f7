package cli

import (
	"context"
	"net/url"
)

// owner has the flag that selects the owner of the objects of a command, such as alert rules or
// shared links: a tenant or the operator.
type owner struct {
	Tenant string `setting:"false" placeholder:"SLUG" help:"The tenant that owns it. Default: the operator, or the tenant of the API key."`
}

// path returns a path below /v1, with the owner in its query.
func (o owner) path(segments ...string) string {
	if o.Tenant == "" {
		return path(segments...)
	}
	return path(segments...) + "?" + url.Values{"tenant": {o.Tenant}}.Encode()
}

// ownRows prints a list of objects that the owner has, such as its alert rules.
func (o owner) ownRows(
	ctx context.Context, t Terminal, c Connection, kind string, filters map[string]string, limit int, columns []Column,
) error {
	query := map[string]string{"tenant": o.Tenant}
	for name, value := range filters {
		query[name] = value
	}
	return c.rows(ctx, t, path(kind), query, limit, columns)
}

// show prints one object of the owner, such as an alert rule.
func (o owner) show(ctx context.Context, t Terminal, connection Connection, columns []Column, segments ...string) error {
	c, err := connection.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, o.path(segments...), columns...)
}
