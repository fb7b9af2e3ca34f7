package main

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/tenants"
)

// keyCommand is headgate key. It creates, lists and revokes operator keys directly in the database.
// So it can create the first key, when no key for the API exists yet. Running nodes load the change
// within a second.
type keyCommand struct {
	Create keyCreate `cmd:"" help:"Create an operator key and print it once: headgate key create --name ci"`
	List   keyList   `cmd:"" help:"List operator keys, without their secrets."`
	Revoke keyRevoke `cmd:"" help:"Revoke an operator key by id: headgate key revoke 0190…"`
}

// A keyRow is a key in the output of headgate key.
type keyRow struct {
	ID        string          `json:"id,omitempty"` // "" for a key that a dry run does not create
	Name      string          `json:"name"`
	Hint      string          `json:"hint,omitempty"` // "" for a key that a dry run does not create
	Scopes    []tenants.Scope `json:"scopes"`
	CreatedAt string          `json:"created_at"`
	State     string          `json:"state"`
}

func rowOf(key tenants.Key) keyRow {
	return keyRow{key.ID, key.Name, key.Hint, key.Scopes, key.CreatedAt.UTC().Format(time.RFC3339), keyState(key)}
}

type keyCreate struct {
	localSettings
	dryRun
	Name    string        `required:"" setting:"false" help:"What the key is for."`
	Scopes  []string      `default:"check,read,manage" enum:"check,read,manage" setting:"false" help:"Scopes by comma: check, read, manage."`
	Expires time.Duration `setting:"false" help:"After how long it ends, like 720h; default: never."`
	AllowIP []string      `setting:"false" placeholder:"CIDR,..." help:"IP addresses and CIDR ranges from which the key may be used; default: all."`

	MaxCost  *int64 `setting:"false" placeholder:"N" help:"The largest cost of one check; default: no bound."`
	PeekOnly bool   `setting:"false" help:"Checks with this key must have the mode peek, which charges nothing."`
}

func (k keyCreate) Run(ctx context.Context, p program, t cli.Terminal) error {
	if k.Expires < 0 {
		return usageError{fmt.Errorf("--expires: is %s, and must be ahead", k.Expires)}
	}
	bounds := tenants.Bounds{PeekOnly: k.PeekOnly}
	if k.MaxCost != nil {
		if bounds.MaxCost = *k.MaxCost; bounds.MaxCost < 1 || bounds.MaxCost > tenants.MaxCost {
			return usageError{fmt.Errorf("--max-cost: is %d, and must be 1 to %d", bounds.MaxCost, int64(tenants.MaxCost))}
		}
	}
	next := tenants.NewKey{Name: k.Name, AllowedIPs: k.AllowIP, Bounds: bounds}
	for _, s := range k.Scopes {
		next.Scopes = append(next.Scopes, tenants.Scope(s))
	}
	if k.Expires > 0 {
		next.ExpiresAt = time.Now().Add(k.Expires)
	}
	var key tenants.Key
	var token string
	err := k.withChange(ctx, p, "key create", k.dryRun, func(ctx context.Context, st *store.Store) (err error) {
		key, token, err = tenants.NewService(st, tenants.Config{}).CreateOperatorKey(ctx, next)
		return err
	})
	if err != nil {
		return err
	}
	result := keyResult{Token: token, Key: rowOf(key)}
	if k.DryRun { // the key does not exist
		result.Token, result.Key.ID, result.Key.Hint, token = "", "", "", ""
		fmt.Fprintf(p.stderr, "operator key %s would be created\n", key.Name)
	} else if k.Format == "table" {
		fmt.Fprintf(p.stderr, "operator key %s (%s), shown once:\n", key.Name, key.ID)
		token += "\n"
	}
	k.say(p)
	return k.Text(t, result, token)
}

// A keyResult is the output of headgate key create.
type keyResult struct {
	Token string `json:"token,omitempty"` // "" in a dry run
	Key   keyRow `json:"key"`
}

type keyList struct{ localSettings }

func (k keyList) Run(ctx context.Context, p program, t cli.Terminal) error {
	return k.withSchema(ctx, p, "key list", dryRun{}, func(ctx context.Context, st *store.Store) error {
		service, rows := tenants.NewService(st, tenants.Config{}), []keyRow{}
		err := eachRow(func(key tenants.Key) { rows = append(rows, rowOf(key)) }, func(key tenants.Key) string { return key.ID },
			func(after string, limit int) ([]tenants.Key, error) {
				return service.OperatorKeys(ctx, tenants.Filter{After: after, Limit: limit})
			})
		if err != nil {
			return err
		}
		return k.Table(t, map[string]any{"data": rows}, "data",
			cli.Column{Title: "ID", Path: "id"}, cli.Column{Title: "NAME", Path: "name"}, cli.Column{Title: "KEY", Path: "hint"},
			cli.Column{Title: "SCOPES", Path: "scopes"}, cli.Column{Title: "CREATED", Path: "created_at"}, cli.Column{Title: "STATE", Path: "state"})
	})
}

func keyState(key tenants.Key) string {
	now := time.Now()
	switch {
	case !key.RevokedAt.IsZero() && !key.RevokedAt.After(now):
		return "revoked"
	case !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(now):
		return "expired"
	case !key.RevokedAt.IsZero():
		return "ends " + key.RevokedAt.Format(time.RFC3339)
	}
	return "valid"
}

type keyRevoke struct {
	localSettings
	dryRun
	ID string `arg:"" help:"The key's id, from headgate key list."`
}

func (k keyRevoke) Run(ctx context.Context, p program, t cli.Terminal) error {
	var key tenants.Key
	err := k.withChange(ctx, p, "key revoke", k.dryRun, func(ctx context.Context, st *store.Store) (err error) {
		key, err = tenants.NewService(st, tenants.Config{}).RevokeOperatorKey(ctx, k.ID)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "operator key %s (%s) is revoked\n", key.Name, key.ID)
	k.say(p)
	return k.Text(t, rowOf(key), "")
}
