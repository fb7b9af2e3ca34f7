package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// command runs one command to its end and returns its output.
func command(t *testing.T, settings map[string]string, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	var out, talk bytes.Buffer
	p := program{getenv: func(name string) string { return settings[name] }, stdin: strings.NewReader(stdin), stdout: &out, stderr: &talk}
	err = p.run(t.Context(), args)
	return out.String(), err
}

// must runs a command and fails the test if the command fails.
func must(t *testing.T, settings map[string]string, args ...string) string {
	t.Helper()
	out, err := command(t, settings, "", args...)
	if err != nil {
		t.Fatalf("headgate %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// An operator key that is created or revoked with a command takes effect on a running node.
func TestKeyCommands(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	node := start(t, settings)
	token := strings.TrimSpace(must(t, settings, "key", "create", "--name", "ci", "--scopes", "read"))
	eventually(t, "the new key is known", func() bool {
		return call(t, token, "GET", node.origin+"/v1/tenants", "").status == 200
	})
	call(t, token, "POST", node.origin+"/v1/tenants", `{"slug": "b", "tenant": {"require_route": false, "name": "b"}}`).want(t, 403)

	bounded := strings.TrimSpace(must(t, settings, "key", "create", "--name", "bounded", "--scopes", "check", "--max-cost", "3", "--peek-only"))
	all := strings.TrimSpace(must(t, settings, "key", "create", "--name", "all"))
	eventually(t, "a tenant is made and known", func() bool {
		call(t, all, "POST", node.origin+"/v1/tenants", `{"slug": "customer", "tenant": {"name": "Customer"}}`)
		return call(t, bounded, "POST", node.origin+"/v1/check", `{"tenant": "customer", "method": "GET", "path": "/", "mode": "peek"}`).status == 200
	})
	for body, code := range map[string]string{
		`{"tenant": "customer", "method": "GET", "path": "/", "mode": "peek", "cost": 4}`: "key_max_cost",
		`{"tenant": "customer", "method": "GET", "path": "/"}`:                            "key_peek_only",
	} {
		if a := call(t, bounded, "POST", node.origin+"/v1/check", body).want(t, 403); !strings.Contains(a.body, code) {
			t.Errorf("%s: %s", body, a.body)
		}
	}
	if out := must(t, settings, "key", "list", "-o", "json"); !strings.Contains(out, `"name": "ci"`) || strings.Contains(out, token) {
		t.Errorf("key list -o json:\n%s", out)
	}
	if out := must(t, settings, "version", "-o", "yaml"); out != "version: "+version+"\n" {
		t.Errorf("version -o yaml: %q", out)
	}
	list := must(t, settings, "key", "list")
	if strings.Contains(list, token) || !strings.Contains(list, "ci") {
		t.Fatalf("key list:\n%s", list)
	}
	var id string
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "ci" {
			id = fields[0]
		}
	}
	must(t, settings, "key", "revoke", id)
	eventually(t, "the revoked key is refused", func() bool {
		return call(t, token, "GET", node.origin+"/v1/tenants", "").status == 401
	})
	if _, err := command(t, settings, "", "key", "revoke", "00000000-0000-7000-8000-000000000000"); err == nil {
		t.Error("a key that is not there was revoked")
	}
}

// Each command has -o, and each command that writes has --dry-run, except those listed here with a
// reason.
func TestFlagsOfEveryCommand(t *testing.T) {
	t.Parallel()
	withoutOutput := map[string]string{
		"serve": "has no result", "demo": "has no result",
		"completion bash": "prints a script", "completion zsh": "prints a script", "completion fish": "prints a script",
		"completion words": "is called by the scripts",
	}
	writes := []string{
		"migrate up", "migrate down", "migrate force", "key create", "key revoke", "backup",
		"user create", "user invite", "user link", "user role", "user disable", "user enable", "user reset-second-factor", "secrets reencrypt",
		"check", "refund", "reservations create", "reservations settle", "reservations extend", "reservations release", "leases release", "leases revoke",
		"tenants create", "tenants set", "tenants delete", "plans create", "plans save", "plans publish", "plans delete",
		"keys create", "keys rotate", "keys revoke", "overrides create", "overrides set", "overrides delete",
		"grants create", "grants void", "lists add", "lists delete", "apply", "links create", "links revoke",
		"alerts rules create", "alerts rules set", "alerts rules save", "alerts rules mute", "alerts rules unmute", "alerts rules delete",
		"alerts channels create", "alerts channels set", "alerts channels rotate-secret", "alerts channels test", "alerts channels delete",
		"alerts deliveries repeat", "alerts maintenance create", "alerts maintenance delete",
	}
	reads := []string{
		"migrate status", "key list", "user list", "audit verify", "simulate", "doctor", "bench", "healthcheck", "version",
		"reservations list", "reservations get", "leases list", "explain", "top", "tail", "usage", "tenants list", "tenants get", "plans list", "plans get", "plans validate", "plans diff",
		"plans versions", "keys list", "keys get", "overrides list", "overrides get", "grants list", "grants get", "export", "diff", "import", "lists list", "lists get",
		"alerts list", "alerts get", "alerts rules list", "alerts rules get", "alerts rules templates", "alerts channels list",
		"alerts channels get", "alerts deliveries list", "alerts deliveries get", "alerts maintenance list", "alerts maintenance get", "links list", "links get",
	}
	parser, err := program{getenv: func(string) string { return "" }}.parser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(false) {
		name := strings.TrimPrefix(leaf.FullPath(), "headgate ")
		flags := map[string]bool{}
		for _, group := range leaf.AllFlags(false) {
			for _, f := range group {
				flags[f.Name] = true
			}
		}
		_, exempt := withoutOutput[name]
		writing := slices.Contains(writes, name)
		if !exempt && !writing && !slices.Contains(reads, name) {
			t.Errorf("%s is new: say here whether it writes", name)
		}
		if flags["output"] == exempt {
			t.Errorf("%s: has -o: %t", name, flags["output"])
		}
		if flags["dry-run"] != writing {
			t.Errorf("%s: has --dry-run: %t", name, flags["dry-run"])
		}
	}
}

// A dry run of a command that writes to the database checks everything, and writes nothing.
func TestDryRuns(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder)}
	fails := func(want string, args ...string) {
		t.Helper()
		if _, err := command(t, settings, ownerPassword+"\n", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", args, err, want)
		}
	}
	fails("HEADGATE_DATABASE_URL", "key", "create", "--name", "x", "--dry-run")
	fails("HEADGATE_DATABASE_URL", "migrate", "--dry-run")
	if files, err := os.ReadDir(folder); err != nil || len(files) != 0 {
		t.Fatalf("a dry run created %v (%v)", files, err)
	}
	must(t, settings, "migrate")
	must(t, settings, "migrate", "down", "1", "--yes")
	fails("headgate migrate", "key", "create", "--name", "x", "--dry-run")
	if out := must(t, settings, "migrate", "--dry-run"); !strings.Contains(out, "behind") {
		t.Errorf("migrate --dry-run: %s", out)
	}
	must(t, settings, "migrate")
	must(t, settings, "key", "create", "--name", "one")
	must(t, settings, "key", "create", "--name", "two")
	if _, err := command(t, settings, ownerPassword+"\n", "user", "create", "--email", "ann@example.com", "--role", "owner"); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, settings, ownerPassword+"\n", "user", "create", "--email", "bob@example.com", "--role", "owner"); err != nil {
		t.Fatal(err)
	}
	list := must(t, settings, "key", "list")
	id := strings.Fields(strings.Split(list, "\n")[1])[0]
	state := func() string {
		return must(t, settings, "key", "list") + must(t, settings, "user", "list") + must(t, settings, "audit", "verify") + must(t, settings, "migrate", "status")
	}
	before := state()
	for _, args := range [][]string{
		{"key", "create", "--name", "x"},
		{"key", "revoke", id},
		{"user", "create", "--email", "c@example.com", "--role", "viewer"},
		{"user", "invite", "--email", "c@example.com", "--role", "viewer"},
		{"user", "link", "bob@example.com"},
		{"user", "role", "bob@example.com", "viewer"},
		{"user", "disable", "bob@example.com"},
		{"user", "enable", "bob@example.com"},
		{"migrate", "up"},
		{"migrate", "down", "2"},
		{"migrate", "force", "1"},
		{"backup", filepath.Join(folder, "copy.db")},
	} {
		out, err := command(t, settings, ownerPassword+"\n", append(args, "--dry-run", "-o", "json")...)
		if err != nil {
			t.Errorf("%v: %v", args, err)
			continue
		}
		if !json.Valid([]byte(out)) || strings.Contains(out, `"token"`) || strings.Contains(out, "/invite/") {
			t.Errorf("%v printed %s", args, out)
		}
	}
	if after := state(); after != before {
		t.Errorf("dry runs changed\n%s\nto\n%s", before, after)
	}
	if _, err := os.Stat(filepath.Join(folder, "copy.db")); err == nil {
		t.Error("backup --dry-run wrote the file")
	}
	fails("must be an e-mail address", "user", "invite", "--email", "no", "--role", "viewer", "--dry-run")
	fails("no user has", "user", "disable", "nobody@example.com", "--dry-run")
	fails("has no second factor", "user", "reset-second-factor", "bob@example.com", "--dry-run")
	fails("another account", "user", "invite", "--email", "bob@example.com", "--role", "viewer", "--dry-run")
	fails("there is no migration", "migrate", "force", "999", "--dry-run")
	fails("no such file", "backup", filepath.Join(folder, "none", "copy.db"), "--dry-run")
}

// The commands about the database schema can show it while a node runs, and do not change it.
func TestMigrateCommands(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	if out := must(t, settings, "migrate"); !strings.Contains(out, "current") {
		t.Fatalf("migrate: %s", out)
	}
	if _, err := command(t, settings, "", "migrate", "down", "1"); err == nil || !strings.Contains(err.Error(), "--yes") {
		t.Errorf("migrate down without --yes: %v", err)
	}
	if out := must(t, settings, "migrate", "down", "1", "--yes"); !strings.Contains(out, "behind") {
		t.Errorf("migrate down: %s", out)
	}
	node := start(t, settings) // migrates
	if out := must(t, settings, "migrate", "status"); !strings.Contains(out, "current") {
		t.Errorf("migrate status: %s", out)
	}
	for _, args := range [][]string{{"migrate", "down", "1", "--yes"}, {"migrate", "force", "1"}} {
		if _, err := command(t, settings, "", args...); err == nil || !strings.Contains(err.Error(), "served by another headgate") {
			t.Errorf("%v beside a serving node: %v", args, err)
		}
	}
	call(t, "", "GET", node.origin+"/readyz", "").want(t, 200)
}

// audit verify finds and names changes of the audit log that were made outside of Headgate.
func TestAuditVerify(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	if _, err := command(t, settings, "", "audit", "verify"); err == nil || !strings.Contains(err.Error(), "headgate migrate") {
		t.Errorf("without a schema: %v", err)
	}
	for _, name := range []string{"a", "b", "c"} {
		must(t, settings, "key", "create", "--name", name)
	}
	good := must(t, settings, "audit", "verify")
	if !strings.Contains(good, " 3 lines") || strings.Contains(good, "older lines") {
		t.Fatalf("audit verify: %s", good)
	}
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(settings["HEADGATE_DATABASE_URL"], "sqlite://"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec(`DROP TRIGGER audit_log_not_updated`)
	exec(`UPDATE audit_log SET object_name = 'x' WHERE seq = 2`)
	_, err = command(t, settings, "", "audit", "verify")
	if err == nil || errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "line 2 (") {
		t.Errorf("a changed line: %v, want it named and the exit code 1", err)
	}
	exec(`UPDATE audit_log SET object_name = 'b' WHERE seq = 2`)
	if again := must(t, settings, "audit", "verify"); again != good {
		t.Errorf("audit verify after it was mended: %s", again)
	}
	exec(`DROP TRIGGER audit_log_not_deleted`)
	exec(`DELETE FROM audit_log WHERE seq = 3`)
	if _, err := command(t, settings, "", "audit", "verify"); err == nil || !strings.Contains(err.Error(), "line 3 is missing") {
		t.Errorf("a removed line: %v", err)
	}
	if help := must(t, nil, "audit", "verify", "--help"); !strings.Contains(help, "Ends with 0") {
		t.Errorf("help: %s", help)
	}
}

func TestVersionAndHealthcheck(t *testing.T) {
	t.Parallel()
	if out := must(t, nil, "version"); out != "headgate "+version+"\n" {
		t.Errorf("version: %q", out)
	}
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())})
	at := map[string]string{"HEADGATE_ADDR": strings.TrimPrefix(node.origin, "http://")}
	if out := must(t, at, "healthcheck", "-o", "json"); !strings.Contains(out, `"ready": true`) {
		t.Errorf("healthcheck -o json: %q", out)
	}
	if out := must(t, at, "healthcheck"); out != "ready\n" {
		t.Errorf("healthcheck: %q", out)
	}
	if err := node.end(); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, at, "", "healthcheck"); err == nil {
		t.Error("healthcheck of a stopped node succeeds")
	}
}

// scenario and played are the input and the output of the example in the design.
const (
	scenario = `{"id": "a", "start_ms": 0, "limits": [{"name": "m", "algorithm": "fixed_window", "quota": 10, "window_ms": 60000, "anchor": "first_hit"}],` +
		` "steps": [{"at_ms": 45000, "op": "check", "cost": 1, "repeat": 1, "key": "k"}]}` + "\n"
	played = `{"id": "a", "steps": [{"at_ms": 45000, "allowed": true, "allowed_count": 1, "granted": 1, "retry_after_ms": 0, "delay_ms": 0,` +
		` "limits": [{"name": "m", "allowed": true, "remaining": 9, "reset_after_ms": 60000, "retry_after_ms": 0}]}]}` + "\n"
)

func TestSimulate(t *testing.T) {
	t.Parallel()
	out, err := command(t, nil, scenario+"nonsense\n"+scenario, "simulate")
	if exitCode(err) != 1 || !strings.Contains(err.Error(), "1 of the scenarios") {
		t.Errorf("exit code %d: %v", exitCode(err), err)
	}
	if _, err := command(t, nil, scenario, "simulate"); err != nil {
		t.Errorf("without an error: %v", err)
	}
	if out, _ := command(t, nil, scenario+"nonsense\n", "simulate", "-o", "table"); out != `"a"  45000 ms  1 allowed  1 granted  last one allowed`+"\n"+
		`"-"  error  a value is missing, near byte 0`+"\n" {
		t.Errorf("simulate -o table: %s", out)
	}
	if out, err := command(t, nil, scenario+scenario, "simulate", "-o", "yaml"); err != nil || strings.Count(out, "---\nid: a\n") != 2 {
		t.Errorf("simulate -o yaml: %s %v", out, err)
	}
	lines := strings.SplitAfter(out, "\n")
	if len(lines) != 4 || lines[0] != played || lines[2] != played || !strings.Contains(lines[1], `"error"`) {
		t.Errorf("simulate:\n%s", out)
	}
}
