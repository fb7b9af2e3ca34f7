//go:build !quick

package main

import (
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

const toppedPlan = `plans:
  starter:
    name: Starter
    policies:
      - slug: requests
        match: {path: /v1/items}
        count_by: [user]
        limits: [{name: day, algorithm: fixed_window, quota: 2, window: 24h}, {name: rate, algorithm: token_bucket, quota: 1000, window: 1s}]
      - slug: closed
        match: {path: /v1/closed}
        limits: [{algorithm: fixed_window, quota: 0, window: 24h}]
tenants:
  acme: {name: Acme, plan: starter}
`

func TestCLIGrants(t *testing.T) {
	t.Parallel()
	const create = "grants create acme --policy requests "
	const rest = " --expires 720h --reason 'invoice 4711'"
	session(t, "grants", cliServer(t), []cliStep{
		{args: "apply -f -", stdin: toppedPlan},
		{args: "check GET /v1/items --tenant acme -a user=u1 --cost 3", exit: cli.ExitDenied},
		{args: create + "--units 5" + rest, exit: cli.ExitInvalid},
		{args: create + "--limit-name rate --units 5" + rest, exit: cli.ExitInvalid},
		{args: create + "--limit day --units 0" + rest, exit: cli.ExitInvalid},
		{args: create + "--limit day --units 5 --expires=-1h --reason r", exit: cli.ExitUsage},
		{args: create + "--limit day --units 5 --expires 9000h --reason r", exit: cli.ExitInvalid},
		{args: "grants create acme --policy closed --units 5" + rest, exit: cli.ExitInvalid},
		{args: create + "--limit day --units 5 --key user=u1 --dry-run --expires 720h --reason 'invoice 4711'"},
		{args: create + "--limit-name day --units 5" + rest},
		{args: "check GET /v1/items --tenant acme -a user=u1 --cost 3"},
		{args: create + "--limit day --units 4 --key user=u2" + rest},
		{args: "grants list acme"},
		{args: "grants list acme --policy closed"},
		{args: "grants list acme --limit 1"},
		{args: "grants get acme $(grants list acme)"},
		{args: "grants void acme $(grants list acme)", exit: cli.ExitUsage},
		{args: "grants void acme $(grants list acme) --dry-run"},
		{args: "grants void acme $(grants list acme) --yes"},
		{args: "grants get acme 0190f5c4-7e1a-7b3c-8d2e-0123456789ab", exit: cli.ExitNotFound},
		{args: "check GET /v1/items --tenant acme -a user=u2 --cost 7", exit: cli.ExitDenied},
		{args: "check GET /v1/items --tenant acme -a user=u2 --cost 6"},
	})
}
