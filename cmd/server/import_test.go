package main

import (
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/cli"
)

// The imported plans of each format are applied to a new server. The server then decides checks
// like the other product.
func TestImport(t *testing.T) {
	t.Parallel()
	const files = "../../internal/migrate/testdata/"
	settings := cliServer(t)
	const unlimited = -1
	type check struct {
		args string
		most int64 // the largest cost that one check may have
	}
	for format, c := range map[string]struct {
		file, plan string
		checks     []check
	}{
		"envoy": {"envoy.yaml", "messaging", []check{
			{"POST /send -a message_type=marketing -a to_number=1", 5},
			{"POST /send -a message_type=invoice -a to_number=2", 100},
			{"GET / -a ip=203.0.113.5", unlimited}, // its limit is in shadow
			{"GET / -a ip=203.0.113.6", unlimited},
			{"GET / -a ip=203.0.113.7", 0},
			{"GET / -a ip=203.0.113.8", 10},
		}},
		"kong": {"kong.yaml", "kong", []check{
			{"GET / -a consumer=ann", 5},
			{"DELETE /v2/orders/7 -a consumer=cat", 5},
			{"GET /v2/orders/7 -a consumer=ann -a x-device=d1", 2},
			{"GET /v2/orders/7 -a consumer=bob", 5_000},
		}},
		"aws": {"aws.json", "basic", []check{
			{"POST /login -a api_key=k1", 2},
			{"GET /pets/7 -a api_key=k1", 40},
			{"GET /other -a api_key=k1", 10},
		}},
		"nginx": {"nginx.conf", "nginx", []check{
			{"GET /login -a ip=203.0.113.9 -a host=api.example.com", 1},
			{"GET /search/x -a ip=203.0.113.9 -a host=api.example.com", 6},
			{"GET /api/x -a x-api-key=k1", 51},
			{"GET /api/beta/x -a x-api-key=k1", unlimited},
			{"GET /other -a ip=203.0.113.9 -a host=api.example.com", 21},
		}},
	} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			plans := must(t, settings, "import", format, files+c.file)
			plans += "tenants:\n  " + format + ": {name: " + format + ", plan: " + c.plan + "}\n"
			if out, err := command(t, settings, plans, "apply", "-f", "-"); err != nil {
				t.Fatalf("apply: %v\n%s", err, out)
			}
			for _, k := range c.checks {
				cost := func(n int64) []string {
					return append(words("check "+k.args), "--tenant", format, "--cost", strconv.FormatInt(n, 10))
				}
				if k.most == unlimited {
					must(t, settings, cost(1_000_000)...)
					continue
				}
				if k.most > 0 {
					must(t, settings, cost(k.most)...)
				}
				if out, err := command(t, settings, "", cost(k.most+1)...); exitCode(err) != cli.ExitDenied {
					t.Errorf("%s with the cost %d is not denied: %v\n%s", k.args, k.most+1, err, out)
				}
			}
		})
	}
	one := must(t, settings, "import", "nginx", files+"nginx.conf", "--plan", "edge", "--tenant", "site", "-o", "json")
	if out, err := command(t, settings, one, "apply", "-f", "-"); err != nil || !strings.Contains(out, "/tenants/site") {
		t.Errorf("apply with --tenant: %v\n%s", err, out)
	}
	if _, err := command(t, settings, "", "import", "aws", files+"aws.json", "--tenant", "x"); exitCode(err) != cli.ExitUsage {
		t.Errorf("--tenant with two plans: %v", err)
	}
	if _, err := command(t, settings, "events {}", "import", "nginx", "-"); exitCode(err) != cli.ExitInvalid {
		t.Errorf("a file without limits: %v", err)
	}
}
