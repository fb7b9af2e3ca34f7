//go:build !quick

package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// fence matches a code block of a page.
var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// blocksOf returns the code blocks of a page with a language.
func blocksOf(t *testing.T, page, language string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			blocks = append(blocks, m[2])
		}
	}
	return blocks
}

// A shellPage is a page whose shell blocks run in order, in one shell, on a new server.
type shellPage struct {
	page  string
	files map[string]string // in the folder of the shell, by name
	plan  string            // is applied first
	// replace has what stands for things that the test does not have, such as the name of a server.
	replace []string
	want    []string // in what the commands print
}

const acmePlan = `plans:
  pro:
    name: Pro
    policies:
      - {slug: login-per-ip, match: {path: /v1/login}, count_by: [ip], limits: [{name: l1, algorithm: sliding_window_log, quota: 5, window: 1m}]}
tenants:
  acme: {name: Acme Inc., plan: pro}
`

func shellPages(t *testing.T) []shellPage {
	return []shellPage{
		{page: "docs/alerts.md", plan: acmePlan, want: []string{`"secret"`, `"metric":"denial_rate"`, "The login is attacked  denials", "Upgrade of the database", "the message is queued"}},
		{page: "docs/exceptions.md", plan: acmePlan, want: []string{`"factor":2`, `"203.0.0.0/16"`, `"list":"allow"`, `"remaining":200`}},
		{
			page: "docs/migrating.md", files: map[string]string{"plans/.keep": ""},
			replace: []string{"nginx -T", "cat " + fromHere(t, "../../internal/migrate/testdata/nginx.conf"), "headgate diff -f plans/", "headgate diff -f plans/ || test $? = 11"},
			want:    []string{"site"},
		},
		{
			page:    "docs/people.md",
			files:   map[string]string{"password.txt": "maple-otter-4417-vivid\n"},
			replace: []string{"headgate user list", "headgate user list && P=maple-otter-4417-vivid && for who in ann bob; do echo $P | headgate user create --email $who@example.com --role editor; done", "--email ann@example.com --role owner", "--email eve@example.com --role owner"},
			want:    []string{"/invite/", "eve@example.com can sign in as owner", "bob@example.com is disabled"},
		},
		{
			page: "docs/performance.md", plan: acmePlan, replace: []string{"HEADGATE_BENCH_KEY=…", "HEADGATE_BENCH_KEY=$HEADGATE_KEY", "http://127.0.0.1:8080", "$HEADGATE_URL", "--tenant bench", "--tenant acme --duration 300ms"},
			want: []string{"checks/s"},
		},
		{
			page: "docs/plans-as-code.md", files: map[string]string{"plans/all.yaml": strings.Replace(
				blocksOf(t, "docs/plans-as-code.md", "yaml")[0], "2027-11-01T00:00:00Z", time.Now().AddDate(0, 1, 0).UTC().Format(time.RFC3339), 1)},
			replace: []string{"headgate diff -f plans/ ", "headgate diff -f plans/ || test $? = 11 "}, want: []string{"/plans/pro", "applied; changes: 4"},
		},
	}
}

func fromHere(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return absolute
}

func TestShellPages(t *testing.T) {
	t.Parallel()
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range shellPages(t) {
		t.Run(p.page, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for name, text := range p.files {
				path := filepath.Join(folder, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			database := sqliteIn(t.TempDir())
			node := start(t, map[string]string{
				"HEADGATE_DATABASE_URL": database, "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
			})
			script := strings.NewReplacer(p.replace...).Replace(strings.Join(blocksOf(t, p.page, "sh"), "\n"))
			if p.plan != "" {
				script = "headgate apply -f - <<'END' >&2\n" + p.plan + "END\n" + "until headgate usage acme >/dev/null; do sleep 0.1; done\n" + script
			}
			shell := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
			shell.Dir = folder
			shell.Env = []string{
				"PATH=" + filepath.Dir(program) + ":" + os.Getenv("PATH"), "HOME=" + folder, "HEADGATE_URL=" + node.origin,
				"HEADGATE_TOKEN=" + bootstrap, "HEADGATE_KEY=" + bootstrap, "HEADGATE_DATABASE_URL=" + database,
			}
			out, err := shell.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, script, out)
			}
			for _, want := range p.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("%s is not in:\n%s", want, out)
				}
			}
		})
	}
}

// The commands accept the YAML of docs/cli.md.
func TestFilesOfCLIPage(t *testing.T) {
	t.Parallel()
	blocks := blocksOf(t, "docs/cli.md", "yaml")
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap})
	profiles := write("profiles.yaml", strings.NewReplacer("https://staging.limits.example.com", node.origin, "hg_op_…", bootstrap).Replace(blocks[0]))
	must(t, nil, "tenants", "list", "--profiles", profiles)
	settings := strings.NewReplacer("/run/secrets/database-url", write("database-url", sqliteIn(t.TempDir())),
		"/run/secrets/redis-url", write("redis-url", "")).Replace(blocks[1])
	must(t, nil, "migrate", "--config", write("headgate.yaml", settings))
}

// Each code block of the README and of docs/ is tried by a test, or stands here with a reason.
func TestEveryBlockIsTried(t *testing.T) {
	t.Parallel()
	const shape = "shows a part of an answer, whose members other tests check"
	tried := map[string]string{
		"README.md sh": "make run and make test are what .ci/run does; TestFirstRefusal pastes the curl", "README.md http": "TestFirstRefusal",
		"docs/alerts.md json":     "TestMessageOfTheDocuments",
		"docs/algorithms.md json": "TestCalendarSessionOfTheDocuments", "docs/algorithms.md sh": "TestCalendarSessionOfTheDocuments",
		"docs/api.md json": shape,
		"docs/cli.md yaml": "TestFilesOfCLIPage",
		"docs/cli.md sh":   "TestCompletion",
		"docs/costs.md sh": "TestPlayedPages", "docs/costs.md yaml": "TestPlayedPages", "docs/costs.md json": "TestPlayedPages",
		"docs/idempotency.md http": "the request that the shell block after it sends",
		"docs/idempotency.md sh":   "TestPlayedPages", "docs/idempotency.md yaml": "TestPlayedPages", "docs/idempotency.md json": "TestPlayedPages",
		"docs/leaky-bucket.md http": "TestPagesOfRequests", "docs/leaky-bucket.md json": "TestPagesOfRequests", "docs/leaky-bucket.md yaml": "TestPagesOfRequests",
		"docs/soft-limits.md http": "TestPagesOfRequests", "docs/soft-limits.md json": "TestPagesOfRequests", "docs/soft-limits.md yaml": "TestPagesOfRequests",
		"docs/monthly-quotas.md http": "TestPagesOfRequests", "docs/monthly-quotas.md json": "TestPagesOfRequests", "docs/monthly-quotas.md yaml": "TestPagesOfRequests",
		"docs/grants.md http": "TestPagesOfRequests", "docs/grants.md json": "TestPagesOfRequests", "docs/grants.md yaml": "TestPagesOfRequests",
		"docs/concurrency.md http": "TestPagesOfRequests", "docs/concurrency.md json": "TestPagesOfRequests", "docs/concurrency.md yaml": "TestPagesOfRequests",
		"docs/reservations.md http": "TestPagesOfRequests", "docs/reservations.md json": "TestPagesOfRequests", "docs/reservations.md yaml": "TestPagesOfRequests",
		"docs/refunds.md http": "TestPagesOfRequests", "docs/refunds.md json": "TestPagesOfRequests", "docs/refunds.md yaml": "TestPagesOfRequests",
		"docs/envoy.md sh":           "every test of the Envoy services starts a node with this setting",
		"docs/envoy.md yaml":         "fragments of what deploy/proxytest runs in Envoy",
		"docs/gateways.md sh":        "needs an identity provider and a key of a customer; TestForwardAuth tests what they set",
		"docs/gateways.md caddyfile": "deploy/proxytest runs the whole recipe",
		"docs/operations.md sh":      "TestDoctorOfNewInstallation", "docs/operations.md lua": "a script for wrk, which no test installs",
		"docs/plans-as-code.md yaml":    "the first block by TestShellPages; the second needs GitHub",
		"docs/production.md sh":         "TestProductionCommandsAreRun",
		"docs/redis-protocol.md sh":     "every test of the Redis protocol starts a node with this setting",
		"docs/redis-protocol.md python": "needs Python; deploy/ has no test with it",
		"docs/redis-protocol.md json":   "TestRESPThrottle",
		"docs/simulate.md sh":           "TestSimulatePage", "docs/simulate.md json": "TestSimulatePage",
	}
	for _, p := range shellPages(t) {
		tried[p.page+" sh"] = "TestShellPages"
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found, command := map[string]bool{}, regexp.MustCompile(`(?m)^(curl|headgate|make|[A-Z_]+=\S+) `)
	for _, path := range append(pages, "../../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.TrimPrefix(path, "../../")
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if m[1] == "" && command.MatchString(m[2]) {
				t.Errorf("%s: a block of commands has no language, so that no test finds it:\n%s", page, m[2])
			}
			if m[1] == "yaml" {
				if err := yaml.Unmarshal([]byte(m[2]), new(any)); err != nil {
					t.Errorf("%s: %v:\n%s", page, err, m[2])
				}
			}
			if m[1] != "" {
				found[page+" "+m[1]] = true
			}
		}
	}
	for _, block := range slices.Sorted(maps.Keys(found)) {
		if tried[block] == "" {
			t.Errorf("%s: no test tries these blocks", block)
		}
	}
	var tests strings.Builder
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../internal/alerts/message_test.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(text)
	}
	for block, how := range tried {
		if !found[block] {
			t.Errorf("%s: there is no such block", block)
		}
		if strings.HasPrefix(how, "Test") && !strings.Contains(tests.String(), "func "+how+"(") {
			t.Errorf("%s: there is no test %s", block, how)
		}
	}
}
