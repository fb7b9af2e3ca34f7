//go:build !quick

package main

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

// Reservations and refundable checks are listed, shown and changed.
func TestCLIReservations(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	for _, s := range []struct{ args, stdin string }{
		{"plans create pro -f -", "name: Pro\npolicies: [{slug: jobs, limits: [{algorithm: fixed_window, quota: 10, window: 1h, warn_at: [80]}]}]\n"},
		{"plans publish pro", ""},
		{"tenants create acme --name Acme --plan pro", ""},
	} {
		if _, err := command(t, settings, s.stdin, words(s.args)...); err != nil {
			t.Fatalf("%s: %v", s.args, err)
		}
	}
	for _, id := range []string{"job-1", "job-2"} {
		body := `{"id": "` + id + `", "ttl_ms": 600000, "tenant": "acme", "method": "POST", "path": "/jobs", "cost": 3}`
		call(t, bootstrap, http.MethodPost, settings["HEADGATE_URL"]+"/v1/reservations", body).want(t, http.StatusCreated)
	}
	var check struct {
		Decision string `json:"decision_id"`
	}
	out := must(t, settings, words("check POST /jobs --tenant acme --cost 4 --refundable -o json")...)
	if err := json.Unmarshal([]byte(out), &check); err != nil {
		t.Fatal(err)
	}
	session(t, "reservations", settings, []cliStep{
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 2", exit: cli.ExitDenied},
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 11", exit: cli.ExitDenied},
		{args: "reservations create acme POST /jobs --ttl 10ms --id job-3", exit: cli.ExitInvalid},
		{args: "reservations create acme POST /jobs --id job-3", exit: cli.ExitUsage},
		{args: "reservations create nosuch POST /jobs --ttl 5m", exit: cli.ExitNotFound},
		{args: "reservations list acme"},
		{args: "reservations list acme --limit 1 -o json"},
		{args: "reservations get acme job-1"},
		{args: "reservations get acme nosuch", exit: cli.ExitNotFound},
		{args: "reservations list nosuch", exit: cli.ExitNotFound},
		{args: "reservations extend acme job-1 --ttl 5m --dry-run"},
		{args: "reservations extend acme job-1 --ttl 5m"},
		{args: "reservations extend acme job-1 --ttl 10ms", exit: cli.ExitInvalid},
		{args: "reservations extend acme job-1", exit: cli.ExitUsage},
		{args: "reservations settle acme job-1 --cost 1 --dry-run"},
		{args: "reservations settle acme job-1 --cost=-1", exit: cli.ExitInvalid},
		{args: "reservations settle acme job-1 --cost 1"},
		{args: "reservations settle acme job-1 --cost 1"},
		{args: "reservations settle acme job-1 --cost 2", exit: cli.ExitConflict},
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 2 --dry-run"},
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 2"},
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 2"},
		{args: "reservations create acme POST /jobs --ttl 5m --id job-3 --cost 1", exit: cli.ExitConflict},
		{args: "reservations extend acme job-3 --ttl 9m --idempotency-key k1 --dry-run"},
		{args: "reservations extend acme job-3 --ttl 9m --idempotency-key k1"},
		{args: "reservations extend acme job-3 --ttl 8m --idempotency-key k1", exit: cli.ExitConflict},
		{args: "reservations release acme job-3"},
		{args: "reservations create acme POST /jobs --ttl 5m --mode force --cost 1 --idempotency-key k2"},
		{args: "reservations create acme POST /jobs --ttl 5m --mode force --cost 1 --idempotency-key k2"},
		{args: "reservations release acme job-2 --dry-run"},
		{args: "reservations release acme job-2 -o yaml"},
		{args: "reservations list acme"},
		{args: "refund " + check.Decision + " --tenant acme --dry-run"},
		{args: "refund " + check.Decision + " --tenant acme --idempotency-key k"},
		{args: "refund " + check.Decision + " --tenant acme --idempotency-key k"},
		{args: "refund " + check.Decision + " --tenant acme", exit: cli.ExitConflict},
		{args: "refund 01939c1e-0000-7000-8000-000000000081 --tenant acme", exit: cli.ExitNotFound},
		{args: "refund 0 --tenant acme", exit: cli.ExitNotFound},
		{args: "refund " + check.Decision, exit: cli.ExitInvalid},
		{args: "check POST /jobs --tenant acme --refundable"},
		{args: "check POST /jobs --tenant acme --refundable --dry-run"},
	})
}
