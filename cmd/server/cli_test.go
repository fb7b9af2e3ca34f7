package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/tenants"
)

// A step of a transcript is one call of headgate.
type cliStep struct {
	args  string // arguments, separated by spaces; single quotes group words
	stdin string
	exit  int
}

// session runs steps against a server and compares what they print with a golden file.
// go test ./cmd/server -run CLI -update writes it.
func session(t *testing.T, name string, settings map[string]string, steps []cliStep) {
	t.Helper()
	var transcript strings.Builder
	for _, s := range steps {
		var out, talk bytes.Buffer
		p := program{
			getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(s.stdin), stdout: &out, stderr: &talk,
		}
		err := p.run(t.Context(), words(withIDs(t, settings, s.args)))
		fmt.Fprintf(&transcript, "$ headgate %s\n%s", s.args, out.String())
		for line := range strings.Lines(talk.String()) {
			transcript.WriteString("2> " + line)
		}
		if err != nil {
			fmt.Fprintf(&transcript, "2> headgate: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n2> "))
		}
		fmt.Fprintf(&transcript, "exit %d\n\n", exitCode(err))
		if exitCode(err) != s.exit {
			t.Errorf("headgate %s: exit code %d, want %d: %v", s.args, exitCode(err), s.exit, err)
		}
	}
	golden(t, filepath.Join("testdata", "cli", name+".golden"), steady(transcript.String(), settings))
}

// listed matches a list command in a step, whose output has the ID that the step needs.
var listed = regexp.MustCompile(`\$\(([^)]+)\)`)

// withIDs replaces each list command in the arguments of a step with the ID of the first row that it prints.
func withIDs(t *testing.T, settings map[string]string, args string) string {
	t.Helper()
	return listed.ReplaceAllStringFunc(args, func(command string) string {
		lines := strings.Split(must(t, settings, words(command[2:len(command)-1])...), "\n")
		if len(lines) < 2 || lines[1] == "" {
			t.Fatalf("%s has no rows", command)
		}
		return strings.Fields(lines[1])[0]
	})
}

// words splits a line of arguments at spaces outside of single quotes.
func words(line string) []string {
	var list []string
	quoted, open := false, false
	var word strings.Builder
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if open {
				list = append(list, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		list = append(list, word.String())
	}
	return list
}

// steady replaces what differs between two runs.
func steady(text string, settings map[string]string) string {
	if url := settings["HEADGATE_URL"]; url != "" {
		text = strings.ReplaceAll(text, url, "http://SERVER")
	}
	for _, r := range []struct{ pattern, text string }{
		{`whsec_[\w+/=]+`, "whsec_SECRET"},
		{`/shared/[\w-]{43}`, "/shared/TOKEN"},
		{`hg_(tn|op)_\w{40,}`, "hg_${1}_TOKEN"},
		{`hg_(tn|op)_\w+…\w+`, "hg_${1}_HINT"},
		{`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`, "ID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`(?m)^ *"at": "TIME",\n( *"phase": "ok",\n) *"since": "TIME",\n`, "$1"}, // only an evaluated state has times
		{`\b(\d+h)?(\d+m)?\d+(\.\d+)?m?s\b`, "DURATION"},
		{`"(\w*revision)": \d+`, `"$1": N`},
		{`(\w*revision): \d+`, `$1: N`},
		{`"(\w+_ms)": \d+`, `"$1": N`},
		{`(\w+_ms): \d+`, "$1: N"},
		{`(\S) {2,}`, "$1  "},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.text)
	}
	return text
}

func golden(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// cliServer starts a server without sample data and returns the settings of a client.
func cliServer(t *testing.T) map[string]string {
	t.Helper()
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
	})
	return map[string]string{"HEADGATE_URL": node.origin, "HEADGATE_TOKEN": bootstrap, "HOME": t.TempDir()}
}

const proPlan = `name: Pro
policies:
  - slug: login
    match: {path: /v1/login}
    count_by: [user]
    limits:
      - {algorithm: fixed_window, quota: 1, window: 1h}
`

func TestCLISession(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	session(t, "session", settings, []cliStep{
		{args: "plans create pro -f - --dry-run", stdin: proPlan},
		{args: "plans create pro -f -", stdin: proPlan},
		{args: "plans create pro -f -", stdin: proPlan, exit: cli.ExitConflict},
		{args: "plans create bad -f -", stdin: "name: Bad\npolices: []\n", exit: cli.ExitInvalid},
		{args: "plans create bad -f -", stdin: "name: [", exit: cli.ExitInvalid},
		{args: "plans get pro", exit: cli.ExitNotFound},
		{args: "plans get pro --draft -o yaml"},
		{args: "plans validate pro"},
		{args: "plans diff pro", exit: cli.ExitDifferences},
		{args: "plans publish pro"},
		{args: "plans diff pro"},
		{args: "plans list"},
		{args: "plans versions pro -o json"},
		{args: "tenants create acme --name 'Acme Inc.' --plan pro"},
		{args: "tenants create other --name Other --plan none", exit: cli.ExitInvalid},
		{args: "tenants list -o json"},
		{args: "tenants set acme --status suspended --dry-run"},
		{args: "tenants set acme --time-zone Europe/Berlin"},
		{args: "tenants set acme --no-require-route -o json"},
		{args: "tenants set acme --require-route -o yaml"},
		{args: "tenants set acme --no-trace -o json"},
		{args: "tenants set acme --trace"},
		{args: "tenants get acme -o yaml"},
		{args: "tenants create none --name None --plan ''"},
		{args: "tenants set none --name 'No plan' -o json"},
		{args: "tenants get nosuch", exit: cli.ExitNotFound},
		{args: "check POST /v1/login --tenant acme -a user=u1"},
		{args: "check POST /v1/login --tenant acme -a user=u1", exit: cli.ExitDenied},
		{args: "check POST /v1/login --tenant acme -a user=u1 --dry-run -o yaml", exit: cli.ExitDenied},
		{args: "check POST v1/login --tenant acme", exit: cli.ExitInvalid},
		{args: "explain POST /v1/login --tenant acme -a user=u1", exit: cli.ExitDenied},
		{args: "explain POST /v1/other --tenant acme"},
		{args: "overrides create acme --policy login --attribute user --value u1 --factor 2.5 --reason 'load test' --expires 24h"},
		{args: "overrides create acme --policy login --quota l1=7 --reason 'a try' --dry-run"},
		{args: "overrides create acme --policy nosuch --factor 2 --reason x", exit: cli.ExitInvalid},
		{args: "overrides list acme"},
		{args: "overrides set acme $(overrides list acme) --dry-run", exit: cli.ExitUsage},
		{args: "overrides set acme $(overrides list acme) --factor 3 --expires 48h --dry-run"},
		{args: "overrides set acme $(overrides list acme) --quota l1=3 --prefix u --reason 'a longer test' -o json"},
		{args: "overrides set acme $(overrides list acme) --burst l1=3", exit: cli.ExitInvalid},
		{args: "overrides set acme $(overrides list acme) --window l1=2h"},
		{args: "overrides set acme $(overrides list acme) --all-keys --value u1", exit: cli.ExitUsage},
		{args: "overrides set acme $(overrides list acme) --factor 2.5 --value u1"},
		{args: "check POST /v1/login --tenant acme -a user=u1"},
		{args: "lists add acme deny ip 203.0.113.0/24 --reason scrapers"},
		{args: "lists add acme deny ip 203.0.113.0/24", exit: cli.ExitConflict},
		{args: "lists list acme --list deny"},
		{args: "check GET / --tenant acme -a ip=203.0.113.9", exit: cli.ExitDenied},
		{args: "keys create --tenant acme --name gateway --scopes check"},
		{args: "keys create --tenant acme --name customer --scopes check --max-cost 10 --peek-only -o json"},
		{args: "keys create --tenant acme --name customer --scopes check --max-cost=-1", exit: cli.ExitInvalid},
		{args: "keys list --tenant acme"},
		{args: "keys revoke 00000000-0000-7000-8000-000000000000", exit: cli.ExitNotFound},
		{args: "top --by tenants --since 0s", exit: cli.ExitUsage},
		{args: "tenants delete acme", exit: cli.ExitUsage},
		{args: "plans delete pro --yes", exit: cli.ExitConflict},
		{args: "tenants delete acme --yes --dry-run"},
		{args: "tenants delete acme --yes"},
		{args: "plans delete pro --yes"},
		{args: "tenants list"},
	})
}

const denialRule = `name: Acme is limited
metric: denial_rate
tenant: acme
window: 5m
threshold: 20
recovery: 10
`

// Issue 13: rules, channels, messages and maintenance windows are administered with commands. Each write has a dry run, and an error says what to do.
func TestCLIAlerts(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	for _, args := range []string{"plans create pro -f -", "plans publish pro", "tenants create acme --name Acme --plan pro"} {
		if _, err := command(t, settings, proPlan, words(args)...); err != nil {
			t.Fatalf("headgate %s: %v", args, err)
		}
	}
	const rule, channel = "$(alerts rules list)", "$(alerts channels list)"
	session(t, "alerts", settings, []cliStep{
		{args: "alerts rules templates"},
		{args: "alerts rules templates --tenant acme"},
		{args: "alerts channels create --name 'on call' --to https://hooks.example.com/headgate --dry-run"},
		{args: "alerts channels create --name 'on call' --to https://hooks.example.com/headgate"},
		{args: "alerts channels create --name chat --kind slack --to http://chat.example.com/x", exit: cli.ExitInvalid},
		{args: "alerts channels create --name mail --kind email --to mailto:ops@example.com", exit: cli.ExitInvalid},
		{args: "alerts channels list"},
		{args: "alerts channels set " + channel, exit: cli.ExitUsage},
		{args: "alerts channels set " + channel + " --name operations"},
		{args: "alerts channels get " + channel + " -o yaml"},
		{args: "alerts channels rotate-secret " + channel + " --dry-run"},
		{args: "alerts channels rotate-secret " + channel + " -o json"},
		{args: "alerts rules create -f -", stdin: denialRule},
		{args: "alerts rules create -f - --template denials", stdin: denialRule, exit: cli.ExitUsage},
		{args: "alerts rules create -f -", stdin: "[]", exit: cli.ExitInvalid},
		{args: "alerts rules create", exit: cli.ExitUsage},
		{args: "alerts rules create --template nosuch", exit: cli.ExitUsage},
		{args: "alerts rules create --template denials --threshold many", exit: cli.ExitUsage},
		{args: "alerts rules create --name x --metric denials --threshold 5", exit: cli.ExitInvalid},
		{args: "alerts rules create --template quota-80 --watch acme --threshold 70 --recovery '' --channel " + channel + " --dry-run"},
		{args: "alerts rules list"},
		{args: "alerts rules set " + rule, exit: cli.ExitUsage},
		{args: "alerts rules set " + rule + " --threshold 30 --for 2m --channel " + channel + " --dry-run"},
		{args: "alerts rules set " + rule + " --threshold 30 --for 2m --min-requests 100 --channel " + channel + " --disabled"},
		{args: "alerts rules set " + rule + " --for '' --channel '' --no-disabled --policy login -o json"},
		{args: "alerts rules set " + rule + " --window 1s", exit: cli.ExitInvalid},
		{args: "alerts rules get " + rule + " --document -o yaml"},
		{args: "alerts rules save " + rule + " -f -", stdin: strings.Replace(denialRule, "20", "25", 1)},
		{args: "alerts rules mute " + rule + " --for 0s", exit: cli.ExitUsage},
		{args: "alerts rules mute " + rule + " --for 2h"},
		{args: "alerts rules unmute " + rule},
		{args: "alerts rules delete " + rule + " --dry-run"},
		{args: "alerts rules delete " + rule},
		{args: "alerts rules delete 00000000-0000-7000-8000-000000000000", exit: cli.ExitNotFound},
		{args: "alerts rules create --tenant acme --template quota-100"},
		{args: "alerts rules list --tenant acme"},
		{args: "alerts rules get $(alerts rules list --tenant acme)", exit: cli.ExitNotFound},
		{args: "alerts rules list --tenant nosuch", exit: cli.ExitNotFound},
		{args: "alerts maintenance create --name Upgrade --lasts 0s", exit: cli.ExitUsage},
		{args: "alerts maintenance create --name Upgrade --starts tomorrow --lasts 1h", exit: cli.ExitUsage},
		{args: "alerts maintenance create --name Upgrade --lasts 1h"},
		{args: "alerts maintenance create --tenant acme --name Sundays --starts 2026-11-29T02:00:00Z --lasts 2h --repeat weekly --rule $(alerts rules list --tenant acme) -o yaml"},
		{args: "alerts maintenance list"},
		{args: "alerts maintenance delete $(alerts maintenance list)"},
		{args: "alerts maintenance get 00000000-0000-7000-8000-000000000000", exit: cli.ExitNotFound},
		{args: "alerts list"},
		{args: "alerts get 00000000-0000-7000-8000-000000000000", exit: cli.ExitNotFound},
		{args: "alerts deliveries list --status dead"},
		{args: "alerts channels test " + channel + " --dry-run"},
		{args: "alerts channels delete " + channel, exit: cli.ExitUsage},
		{args: "alerts channels delete " + channel + " --yes"},
		{args: "alerts channels list"},
	})
}

// Issue 13: shared links, displays and snapshots, are created, listed and revoked with commands, and open without signing in.
func TestCLILinks(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	for _, args := range []string{"plans create pro -f -", "plans publish pro", "tenants create acme --name Acme --plan pro"} {
		if _, err := command(t, settings, proPlan, words(args)...); err != nil {
			t.Fatalf("headgate %s: %v", args, err)
		}
	}
	opens := func(link string, status int, want string) {
		t.Helper()
		got := call(t, "", "GET", link, "")
		if got.status != status || !strings.Contains(got.body, want) {
			t.Errorf("%s: %d, want %d and %q: %s", link, got.status, status, want, got.body)
		}
	}
	display := strings.TrimSpace(must(t, settings, words("links create --name lobby --shows overview --query range=6h")...))
	snapshot := strings.TrimSpace(must(t, settings, words("links create --tenant acme --name incident --shows denials --kind snapshot --time-zone Europe/Berlin --expires 24h")...))
	opens(display, http.StatusOK, "The last 6 hours")
	opens(snapshot, http.StatusOK, "Snapshot of ")
	opens(snapshot, http.StatusOK, "Europe/Berlin")
	session(t, "links", settings, []cliStep{
		{args: "links list"},
		{args: "links list --tenant acme -o json"},
		{args: "links get $(links list)"},
		{args: "links create --name x --shows overview --kind snapshot --query policy=login --dry-run"},
		{args: "links create --name x --shows overview --kind snapshot --expires 48h"},
		{args: "links create --name x --shows traffic --tenant acme -o yaml"},
		{args: "links create --name x --shows denials", exit: cli.ExitInvalid},
		{args: "links create --name x --shows overview --query tenant=none", exit: cli.ExitInvalid},
		{args: "links create --name x --shows overview --query range=1y", exit: cli.ExitInvalid},
		{args: "links create --name x --shows overview --query from=2026-11-21T00:00&to=2026-11-21T12:00", exit: cli.ExitInvalid},
		{args: "links create --name x --shows overview --kind snapshot --expires 2400h", exit: cli.ExitInvalid},
		{args: "links create --name x --shows people", exit: cli.ExitUsage},
		{args: "links create --shows overview", exit: cli.ExitUsage},
		{args: "links revoke $(links list --tenant acme) --dry-run"},
		{args: "links revoke $(links list --tenant acme)", exit: cli.ExitNotFound},
		{args: "links revoke --tenant acme $(links list --tenant acme)"},
		{args: "links revoke 00000000-0000-7000-8000-000000000000", exit: cli.ExitNotFound},
	})
	for range 2 {
		must(t, settings, words(withIDs(t, settings, "links revoke $(links list)"))...)
	}
	opens(display, http.StatusNotFound, "This link has ended")
	opens(snapshot, http.StatusOK, "Snapshot of ")
}

// A message that was given up is found, shown with its attempts, and sent again.
func TestCLIDeadLetters(t *testing.T) {
	t.Parallel()
	var answer atomic.Int32
	answer.Store(http.StatusGone)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(int(answer.Load())) }))
	t.Cleanup(receiver.Close)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false",
		"HEADGATE_WEBHOOK_NETWORKS": "127.0.0.0/8",
	})
	settings := map[string]string{"HEADGATE_URL": node.origin, "HEADGATE_TOKEN": bootstrap, "HOME": t.TempDir()}
	must(t, settings, "alerts", "channels", "create", "--name", "on call", "--to", receiver.URL)
	must(t, settings, words(withIDs(t, settings, "alerts channels test $(alerts channels list)"))...)
	messages := func(status string) int {
		return strings.Count(must(t, settings, "alerts", "deliveries", "list", "--status", status), "\n") - 1
	}
	eventually(t, "the message is given up", func() bool { return messages("dead") == 1 })
	shown := must(t, settings, words(withIDs(t, settings, "alerts deliveries get $(alerts deliveries list --status dead)"))...)
	if !strings.Contains(shown, "answer=410 Gone") {
		t.Errorf("the log of the message: %s", shown)
	}
	repeat := words(withIDs(t, settings, "alerts deliveries repeat $(alerts deliveries list --status dead)"))
	must(t, settings, append(repeat, "--dry-run")...)
	if n := messages("dead"); n != 1 {
		t.Errorf("after the dry run, %d messages are dead", n)
	}
	answer.Store(http.StatusNoContent)
	must(t, settings, repeat...)
	eventually(t, "the message is delivered", func() bool { return messages("delivered") == 1 })
}

// Errors before the first request have one exit code, and no message contains a secret.
func TestCLIConnection(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	home := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		file := filepath.Join(home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, mode)); err != nil {
			t.Fatal(err)
		}
		return file
	}
	token := write("token", bootstrap+"\n", 0o600)
	write(".config/headgate/profiles.yaml", fmt.Sprintf("default: here\nprofiles:\n  here: {url: %q, token: %q}\n  file: {url: %q, token_file: ~/token}\n",
		settings["HEADGATE_URL"], bootstrap, settings["HEADGATE_URL"]), 0o600)
	open := write("open.yaml", "profiles: {}", 0o644)
	wrong := write("wrong.yaml", "profiles: {x: {url: 'http://x', tokens: "+bootstrap+"}}", 0o600)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := "http://" + l.Addr().String()
	_ = l.Close()
	url := settings["HEADGATE_URL"]
	for name, c := range map[string]struct {
		env   map[string]string
		args  []string
		stdin string
		exit  int
		want  string
	}{
		"variables":              {env: map[string]string{"HEADGATE_URL": url, "HEADGATE_TOKEN": bootstrap}},
		"token by file":          {env: map[string]string{"HEADGATE_URL": url}, args: []string{"--token-file", token}},
		"token by file variable": {env: map[string]string{"HEADGATE_URL": url, "HEADGATE_TOKEN_FILE": token}},
		"token by stdin":         {env: map[string]string{"HEADGATE_URL": url}, args: []string{"--token-file", "-"}, stdin: bootstrap + "\n"},
		"default profile":        {env: map[string]string{"HOME": home}},
		"profile with file":      {env: map[string]string{"HOME": home}, args: []string{"--profile", "file"}},
		"misspelt profile":       {env: map[string]string{"HOME": home, "HEADGATE_PROFILE": "hree"}, exit: cli.ExitUsage, want: `did you mean "here"?`},
		"two places":             {env: map[string]string{"HOME": home, "HEADGATE_URL": url}, args: []string{"--profile", "here"}, exit: cli.ExitUsage, want: "exclude each other"},
		"the key of a profile stays there": {
			env: map[string]string{"HOME": home, "HEADGATE_URL": url}, exit: cli.ExitUsage, want: "no API key",
		},
		"readable profiles": {args: []string{"--profiles", open}, exit: cli.ExitUsage, want: "chmod 600"},
		"wrong profiles":    {args: []string{"--profiles", wrong}, exit: cli.ExitUsage, want: "token or token_file"},
		"no profiles":       {args: []string{"--profiles", home + "/none"}, exit: cli.ExitUsage, want: "HEADGATE_PROFILES"},
		"no key":            {env: map[string]string{"HEADGATE_URL": url}, exit: cli.ExitUsage, want: "HEADGATE_TOKEN"},
		"no token file":     {env: map[string]string{"HEADGATE_URL": url}, args: []string{"--token-file", home + "/none"}, exit: cli.ExitUsage, want: "HEADGATE_TOKEN_FILE"},
		"two lines":         {env: map[string]string{"HEADGATE_URL": url, "HEADGATE_TOKEN": bootstrap + "\nx"}, exit: cli.ExitUsage, want: "one line"},
		"wrong url":         {env: map[string]string{"HEADGATE_URL": "localhost:8080", "HEADGATE_TOKEN": bootstrap}, exit: cli.ExitUsage, want: "HEADGATE_URL"},
		"another key":       {env: map[string]string{"HEADGATE_URL": url, "HEADGATE_TOKEN": "hg_op_no"}, exit: cli.ExitUnauthorized, want: "401"},
		"unreachable":       {env: map[string]string{"HEADGATE_URL": gone, "HEADGATE_TOKEN": bootstrap}, exit: cli.ExitUnreachable, want: gone + " cannot be reached"},
		"misspelt flag":     {args: []string{"--outptu", "json"}, exit: cli.ExitUsage, want: `did you mean "--output"?`},
		"unknown format":    {args: []string{"-o", "xml"}, exit: cli.ExitUsage, want: "HEADGATE_OUTPUT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, talk bytes.Buffer
			p := program{getenv: func(name string) string { return c.env[name] }, stdin: strings.NewReader(c.stdin), stdout: &out, stderr: &talk}
			err := p.run(t.Context(), append([]string{"tenants", "list"}, c.args...))
			if exitCode(err) != c.exit || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("exit code %d, %v; want %d and %q", exitCode(err), err, c.exit, c.want)
			}
			if strings.Contains(fmt.Sprint(err, out.String(), talk.String()), bootstrap) {
				t.Error("the key is shown")
			}
		})
	}
}

const teamFiles = `$schema: https://limits.example.com/configuration.schema.json
plans:
  pro:
    name: Pro
    policies:
      - slug: login
        count_by: [user]
        limits:
          - {algorithm: fixed_window, quota: 5, window: 1h}
tenants:
  acme:
    name: Acme Inc.
    plan: pro
    overrides:
      - {policy: login, attribute: user, value: u1, factor: 2, reason: a load test, expires_at: 2099-01-01T00:00:00Z}
    lists:
      - {list: deny, attribute: ip, value: 203.0.113.0/24, reason: scrapers}
`

// Files are compared and applied. Errors name the file and the line.
func TestCLIPlansAsCode(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	soon := strings.ReplaceAll(teamFiles, "2099-01-01T00:00:00Z", time.Now().UTC().AddDate(0, 1, 0).Format(time.RFC3339))
	changed := strings.ReplaceAll(soon, "quota: 5", "quota: 9")
	session(t, "plans_as_code", settings, []cliStep{
		{args: "diff -f -", stdin: soon, exit: cli.ExitDifferences},
		{args: "apply -f - --dry-run", stdin: soon},
		{args: "apply -f -", stdin: soon},
		{args: "apply -f -", stdin: soon},
		{args: "diff -f -", stdin: soon},
		{args: "apply -f -", stdin: changed},
		// After the last preview, whose figures would depend on the minute of the check.
		{args: "check GET / --tenant acme -a ip=203.0.113.9", exit: cli.ExitDenied},
		{args: "tenants create other --name Other"},
		{args: "diff -f -", stdin: changed, exit: cli.ExitDifferences},
		{args: "apply -f - --prune -o json", stdin: changed},
		{args: "tenants list"},
		{args: "export"},
		{args: "apply -f -", stdin: strings.Replace(soon, "fixed_window", "fixed", 1), exit: cli.ExitInvalid},
		{args: "apply -f -", stdin: strings.Replace(soon, "policy: login,", "policy: nosuch,", 1), exit: cli.ExitInvalid},
		{args: "apply -f -", stdin: strings.Replace(soon, "    plan: pro\n", "", 1), exit: cli.ExitInvalid},
		{args: "apply -f -", stdin: "plan: {}\n", exit: cli.ExitInvalid},
		{args: "apply -f -", stdin: soon + "---\n" + soon, exit: cli.ExitInvalid},
		{args: "apply -f nosuch.yaml", exit: cli.ExitUsage},
	})
	// What was exported changes nothing, whatever the files are called.
	folder := t.TempDir()
	for name, text := range map[string]string{"all.yaml": must(t, settings, "export"), ".hidden.yaml": "nonsense", "README.md": "nonsense"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must(t, settings, "diff", "--prune", "-f", folder)
}

// A denial appears in tail while it runs, as one line of JSON.
func TestCLITail(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	for _, s := range []struct{ args, stdin string }{
		{"plans create pro -f -", proPlan}, {"plans publish pro", ""}, {"tenants create acme --name Acme --plan pro --sample-allowed 1", ""},
	} {
		if _, err := command(t, settings, s.stdin, words(s.args)...); err != nil {
			t.Fatalf("%s: %v", s.args, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reading, writing := io.Pipe()
	done := make(chan error, 1)
	go func() {
		p := program{getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(""), stdout: writing, stderr: io.Discard}
		done <- p.run(ctx, []string{"tail", "--tenant", "acme", "--since", "1m", "-o", "json"})
		_ = writing.Close()
	}()
	for range 2 {
		_, _ = command(t, settings, "", words("check POST /v1/login --tenant acme -a user=u1")...)
	}
	line := make([]byte, 4096)
	n, err := reading.Read(line)
	if err != nil || !strings.HasPrefix(string(line[:n]), `{"allowed":false,"at":"`) || strings.Count(string(line[:n]), "\n") != 1 || !strings.Contains(string(line[:n]), `"reason":"over_limit"`) {
		t.Errorf("%v: %s", err, line[:n])
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("tail that was ended: %v", err)
	}
	out, err := command(t, settings, "", words("tail --no-follow --since 1h")...)
	if err != nil || strings.Count(out, "\n") != 1 || !strings.Contains(out, "acme  POST /v1/login  over_limit  login  user=u1") {
		t.Errorf("tail --no-follow: %v\n%s", err, out)
	}
	for outcome, want := range map[string]string{"allowed": "ok ", "any": "ok over_limit "} {
		got := ""
		for line := range strings.Lines(must(t, settings, words("tail --no-follow --since 1h --tenant acme --outcome "+outcome)...)) {
			got += strings.Split(line, "  ")[3] + " "
		}
		if got != want {
			t.Errorf("tail --outcome %s has the reasons %s, want %s", outcome, got, want)
		}
	}
	if out := must(t, settings, words("top --by keys --tenant acme")...); !strings.Contains(out, "user=u1") {
		t.Errorf("top --by keys:\n%s", out)
	}
	if out := must(t, settings, "usage", "acme"); !strings.Contains(out, "login   user=u1  l1     1      1     0") {
		t.Errorf("usage:\n%s", out)
	}
	if out := must(t, settings, "top"); !strings.Contains(out, "acme") {
		t.Errorf("top:\n%s", out)
	}
}

func TestUnknownSettings(t *testing.T) {
	t.Parallel()
	secrets := strings.Join(secretSettings, "=x ") + "=x " + strings.Join(secretSettings, "_FILE=x ") + "_FILE=x"
	for variables, want := range map[string]string{
		secrets:                        "",
		"HEADGATE_REDSI_URL=redis://x": `HEADGATE_REDSI_URL: no setting has this name, did you mean "HEADGATE_REDIS_URL"?`,
		"HEADGATE_LOGLEVEL=info":       `"HEADGATE_LOG_LEVEL"`,
		"HEADGATE_TOKN=x":              `"HEADGATE_TOKEN"`,
		"HEADGATE_PORT=8080":           "HEADGATE_PORT",
		"HEADGATE_LOGLEVEL=":           "",
		"HEADGATE_DATABASE_URL_FILE=x HEADGATE_BENCH_KEY=x HEADGATE_URL=http://x HEADGATE_TEST_LOAD=full PATH=/bin":                           "",
		"HEADGATE_PORT=tcp://10.0.0.1:80 HEADGATE_SERVICE_HOST=10.0.0.1 HEADGATE_SERVICE_PORT_HTTP=80 HEADGATE_WEB_PORT_80_TCP_ADDR=10.0.0.1": "",
	} {
		var out bytes.Buffer
		p := program{
			getenv: func(string) string { return "" }, environ: func() []string { return strings.Fields(variables) },
			stdin: strings.NewReader(""), stdout: &out, stderr: &out,
		}
		err := p.run(t.Context(), []string{"version"})
		if (err != nil) != (want != "") || err != nil && (exitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", variables, err, want)
		}
	}
}

// A misspelt command is not taken as an argument of serve, the default.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"chekc": `did you mean "check"?`, "tenants lisst": `did you mean "list"?`, "srve --addr=x": `did you mean "serve"?`,
		"--lg-level=info": `did you mean "--log-level"?`,
	} {
		if _, err := command(t, nil, "", words(args)...); exitCode(err) != cli.ExitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("headgate %s: %v", args, err)
		}
	}
}

// docs/cli.md lists every command and every exit code correctly.
func TestCLIPage(t *testing.T) {
	t.Parallel()
	const path, begin = "../../docs/cli.md", "<!-- go test ./cmd/server -run CLIPage -update writes the rest of this page -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(text), begin)
	golden(t, path, head+begin+cliReference(t))
}

func cliReference(t *testing.T) string {
	t.Helper()
	parser, err := program{getenv: func(string) string { return "" }}.parser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString("\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
	for _, c := range cli.ExitCodes {
		fmt.Fprintf(&page, "| %d | %s |\n", c.Code, c.Meaning)
	}
	page.WriteString("\n## Commands\n\n`headgate COMMAND --help` lists the flags of a command.\n\n| command | what it does |\n|---|---|\n")
	for _, command := range parser.Model.Leaves(true) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", strings.TrimPrefix(command.FullPath(), "headgate "), strings.ReplaceAll(command.Help, "|", "\\|"))
	}
	return page.String()
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for shell, want := range map[string]string{"bash": "complete -F _headgate", "zsh": "#compdef headgate", "fish": "complete -c headgate"} {
		if out := must(t, nil, "completion", shell); !strings.Contains(out, want) {
			t.Errorf("completion %s:\n%s", shell, out)
		}
	}
	for typed, want := range map[string]string{
		"tena": "tenants", "tenants ": "create delete get list set", "tenants list --sta": "--status", "tenants list --status ": "active suspended",
		"tenants list -o ": "json table yaml", "lists add acme d": "deny", "tenants list --url x --out": "--output", "completion ": "bash fish zsh",
	} {
		args := append([]string{"completion", "words", "--"}, strings.Split(typed, " ")...)
		if out := must(t, nil, args...); strings.Join(strings.Fields(out), " ") != want {
			t.Errorf("%q: %q, want %q", typed, out, want)
		}
	}
}

// The key of a customer, which the command reads from a file, appears in no output.
func TestCLIHidesTheKeyOfACustomer(t *testing.T) {
	t.Parallel()
	settings := cliServer(t)
	if _, err := command(t, settings, "", words("tenants create acme --name Acme --plan ''")...); err != nil {
		t.Fatal(err)
	}
	for i, format := range []string{"table", "json", "yaml"} {
		token, file := fmt.Sprintf("acme-%d-secret-of-a-customer", i), filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append(words("keys create --tenant acme --name production --scopes identify -o "+format+" --customer-key-file"), file)
		for _, dryRun := range []bool{true, false} {
			if dryRun {
				args = append(args, "--dry-run")
			} else {
				args = args[:len(args)-1]
			}
			out, err := command(t, settings, "", args...)
			if err != nil || out == "" || strings.Contains(out, token) || !dryRun && !strings.Contains(out, tenants.TokenHint(token)) {
				t.Errorf("%q: %v\n%s", args, err, out)
			}
		}
	}
}
