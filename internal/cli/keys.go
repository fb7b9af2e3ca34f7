package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

type keysCommand struct {
	List   keysList   `cmd:"" help:"List keys, without their secrets: headgate keys list --tenant acme"`
	Get    keysGet    `cmd:"" help:"Show a key, without its secret."`
	Create keysCreate `cmd:"" help:"Create a key and print it once: headgate keys create --tenant acme --name gateway --scopes check"`
	Rotate keysRotate `cmd:"" help:"Replace a key and print the new one once: headgate keys rotate --tenant acme 0190…"`
	Revoke keysRevoke `cmd:"" help:"Revoke a key: headgate keys revoke --tenant acme 0190…"`
}

var keyColumns = []Column{
	{"ID", "id"},
	{"NAME", "name"},
	{"KEY", "hint"},
	{"SCOPES", "scopes"},
	{"CREATED", "created_at"},
	{"EXPIRES", "expires_at"},
	{"REVOKED", "revoked_at"},
	{"LAST USED", "last_used_at"},
	{"MAX COST", "max_cost"},
	{"PEEK ONLY", "peek_only"},
	{"ALLOWED IPS", "allowed_ips"},
}

// keyOwner has the flag that selects the owner of the keys of a command: a tenant or the operator.
type keyOwner struct {
	Tenant string `setting:"false" placeholder:"SLUG" help:"Keys of this tenant. Default: keys of the operator."`
}

func (o keyOwner) path(segments ...string) string {
	if o.Tenant == "" {
		return path(append([]string{"operator-keys"}, segments...)...)
	}
	return path(append([]string{"tenants", o.Tenant, "keys"}, segments...)...)
}

type keysList struct {
	Connection
	keyOwner
	Limit int `setting:"false" help:"How many rows. Default: all."`
}

// Run lists keys.
func (l keysList) Run(ctx context.Context, t Terminal) error {
	return l.rows(ctx, t, l.path(), nil, l.Limit, keyColumns)
}

type keysGet struct {
	Connection
	keyOwner
	ID string `arg:"" help:"The key's id, from headgate keys list."`
}

// Run shows a key.
func (g keysGet) Run(ctx context.Context, t Terminal) error {
	c, err := g.client(t)
	if err != nil {
		return err
	}
	return c.show(ctx, g.path(g.ID), keyColumns...)
}

type keysCreate struct {
	writing
	keyOwner
	Name    string        `required:"" setting:"false" help:"What the key is for."`
	Scopes  []string      `required:"" setting:"false" help:"Scopes by comma: check, read, manage; or identify, for the key of a customer."`
	Expires time.Duration `setting:"false" help:"After how long it ends, like 720h. Default: never."`

	MaxCost  int64 `setting:"false" placeholder:"N" help:"The largest cost of one check. Default: no bound."`
	PeekOnly bool  `setting:"false" help:"Checks with this key must have the mode peek, which charges nothing."`

	CustomerKeyFile string `setting:"false" type:"existingfile" placeholder:"FILE" help:"File with the key that a customer has already, for the scope identify. Default: a new key."`

	AllowIP []string `setting:"false" placeholder:"CIDR,..." help:"IP addresses and CIDR ranges from which the key may be used. Default: all."`
}

// Run creates a key.
func (n keysCreate) Run(ctx context.Context, t Terminal) error {
	c, err := n.client(t)
	if err != nil {
		return err
	}
	body := object{"name": n.Name, "scopes": n.Scopes}
	if err := body.expires(n.Expires); err != nil {
		return err
	}
	if n.MaxCost != 0 {
		body["max_cost"] = n.MaxCost
	}
	if n.PeekOnly {
		body["peek_only"] = true
	}
	if len(n.AllowIP) > 0 {
		body["allowed_ips"] = n.AllowIP
	}
	if n.CustomerKeyFile != "" {
		return n.customerKey(ctx, c, body)
	}
	return c.secret(ctx, n.path(), body)
}

// customerKey creates a key from a token that the customer has chosen, and prints the key without
// this token.
func (n keysCreate) customerKey(ctx context.Context, c *client, body object) error {
	token, err := os.ReadFile(n.CustomerKeyFile)
	if err != nil {
		return err
	}
	if body["token"] = strings.TrimSpace(string(token)); c.dryRun {
		body["token"] = "(the content of " + n.CustomerKeyFile + ")"
	}
	a, sent, err := c.write(ctx, http.MethodPost, n.path(), body, "")
	if err != nil || !sent {
		return err
	}
	var is struct{ Key json.RawMessage }
	if err := json.Unmarshal(a.body, &is); err != nil || is.Key == nil {
		return fmt.Errorf("the answer has no key: %w", err)
	}
	document := []byte(is.Key)
	if c.output.Format != "table" {
		if document, err = json.Marshal(map[string]json.RawMessage{"key": is.Key}); err != nil {
			return err
		}
	}
	return c.output.rows(c.terminal, document, "", keyColumns...)
}

// secret sends a POST request and prints the API key in the response. In the table format it prints
// only the key, so that a script can use the output.
func (c *client) secret(ctx context.Context, path string, body any) error {
	a, sent, err := c.write(ctx, http.MethodPost, path, body, "")
	if err != nil || !sent {
		return err
	}
	if c.output.Format != "table" {
		return c.output.print(c.terminal, a.body, nil)
	}
	var is struct {
		Token string `json:"token"`
		Key   struct{ ID, Name string }
	}
	if err := json.Unmarshal(a.body, &is); err != nil || is.Token == "" {
		return fmt.Errorf("the answer has no key: %w", err)
	}
	c.terminal.say("key %s (%s), shown once:", plain(is.Key.Name), is.Key.ID)
	_, err = fmt.Fprintln(c.terminal.Stdout, is.Token)
	return err
}

type keysRotate struct {
	writing
	keyOwner
	ID      string         `arg:"" help:"The key's id, from headgate keys list."`
	Overlap *time.Duration `setting:"false" help:"How long the old key stays valid, at most 168h. Default: the default of the server."`
}

// Run rotates a key.
func (r keysRotate) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	body := object{}
	if r.Overlap != nil {
		body["overlap_ms"] = r.Overlap.Milliseconds()
	}
	return c.secret(ctx, r.path(r.ID, "rotate"), body)
}

type keysRevoke struct {
	writing
	keyOwner
	ID string `arg:"" help:"The key's id, from headgate keys list."`
}

// Run revokes a key.
func (r keysRevoke) Run(ctx context.Context, t Terminal) error {
	c, err := r.client(t)
	if err != nil {
		return err
	}
	_, sent, err := c.write(ctx, http.MethodDelete, r.path(r.ID), nil, "")
	if sent {
		t.say("key %s is revoked", plain(r.ID))
	}
	return err
}
