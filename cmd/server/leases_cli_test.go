//go:build !quick

package main

import (
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

const exportsPlan = `plans:
  exports:
    name: Exports
    policies:
      - slug: jobs
        match: {path: /v1/exports}
        count_by: [user]
        limits: [{algorithm: concurrency, quota: 1, window: 5m}]
tenants:
  acme: {name: Acme, plan: exports}
`

func TestCLILeases(t *testing.T) {
	t.Parallel()
	const check = "check POST /v1/exports --tenant acme -a user=u1 --lease "
	session(t, "leases", cliServer(t), []cliStep{
		{args: "apply -f -", stdin: exportsPlan},
		{args: check + "job-41 --lease-ttl 30s"},
		{args: check + "job-42", exit: cli.ExitDenied},
		{args: check + "job-41 --lease-ttl 1us", exit: cli.ExitUsage},
		{args: "leases list acme --policy jobs --key user=u1"},
		{args: "leases list acme --policy jobs --key user=u2"},
		{args: "leases list acme --policy nothing", exit: cli.ExitNotFound},
		{args: "leases release job-41 POST /v1/exports --tenant acme -a user=u1"},
		{args: "leases release job-41 POST /v1/exports --tenant acme -a user=u1"},
		{args: check + "job-42"},
		{args: "leases revoke acme job-42 --policy jobs --key user=u1", exit: cli.ExitUsage},
		{args: "leases revoke acme job-42 --policy jobs --key user=u1 --reason 'it hangs' --dry-run"},
		{args: "leases revoke acme job-42 --policy jobs --key user=u1 --reason 'it hangs' --yes -o json"},
	})
}
