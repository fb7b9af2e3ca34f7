//go:build !quick

package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
	serverprocess "github.com/headgate/headgate/internal/servertest/process"
)

// productionCommand matches a block of commands of docs/production.md, and the comment above it.
var productionCommand = regexp.MustCompile("(?m)^(?:<!-- (run|not run): (.+) -->\n)?```sh\n((?s:.+?))```$")

// productionCommands returns the blocks that a test runs, by name.
func productionCommands(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, b := range productionCommand.FindAllStringSubmatch(string(text), -1) {
		switch b[1] {
		case "run":
			blocks[b[2]] = b[3]
		case "":
			t.Errorf("no comment above the commands says whether a test runs them:\n%s", b[3])
		}
	}
	return blocks
}

// A shell runs the blocks of docs/production.md with settings.
type shell struct {
	t      *testing.T
	blocks map[string]string
	env    []string
}

func newShell(t *testing.T, settings map[string]string) *shell {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	initdb, err := serverprocess.Program("initdb")
	if err != nil {
		t.Fatal(err)
	}
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil { // pg_dump is beside it, with the version of the server
		t.Fatal(err)
	}
	folders := []string{filepath.Dir(path), filepath.Dir(initdb), os.Getenv("PATH")}
	s := &shell{t: t, blocks: productionCommands(t), env: []string{"PATH=" + strings.Join(folders, string(filepath.ListSeparator))}}
	for name, value := range settings {
		s.env = append(s.env, name+"="+value)
	}
	return s
}

func (s *shell) run(name string, env ...string) string {
	s.t.Helper()
	if s.blocks[name] == "" {
		s.t.Fatalf("docs/production.md has no commands %q", name)
	}
	command := exec.CommandContext(s.t.Context(), "sh", "-eu", "-c", s.blocks[name])
	command.Env = append(slices.Clone(s.env), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// Each block of docs/production.md is one that a test below runs, or says why it is not run.
func TestProductionCommandsAreRun(t *testing.T) {
	t.Parallel()
	tested := []string{"doctor", "sqlite-backup", "sqlite-restore", "postgres-backup", "postgres-restore", "upgrade", "keys", "secrets-key"}
	for name := range productionCommands(t) {
		if !slices.Contains(tested, name) {
			t.Errorf("no test runs the commands %q", name)
		}
	}
}

// Each metric that docs/production.md names exists.
func TestProductionNamesMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	series, err := os.ReadFile("../../internal/metrics/testdata/series.txt")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile("`(headgate_[a-z_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 10 {
		t.Fatalf("docs/production.md names %d metrics", len(names))
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^` + name[1] + `\s`).Match(series) {
			t.Errorf("there is no metric %s", name[1])
		}
	}
}

func TestBackupAndRestoreOfSQLite(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(data)}
	restores(t, settings, "sqlite", data)
}

func TestBackupAndRestoreOfPostgres(t *testing.T) {
	t.Parallel()
	restores(t, map[string]string{"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_SHUTDOWN_DELAY": "0s"}, "postgres", t.TempDir())
}

// restores makes a backup while a node runs, changes everything, restores the backup, and
// compares the data.
func restores(t *testing.T, settings map[string]string, engine, data string) {
	t.Helper()
	settings["HEADGATE_SNAPSHOT_FILE"] = filepath.Join(data, "headgate.snapshot")
	backup := t.TempDir()
	s := newShell(t, settings)
	s.env = append(s.env, "DATA="+data, "BACKUP="+backup)
	put := func(node *process, slug, name string) {
		t.Helper()
		body := `{"slug": "` + slug + `", "tenant": {"name": "` + name + `", "require_route": false}}`
		call(t, bootstrap, "POST", node.origin+"/v1/tenants", body).want(t, http.StatusCreated)
	}
	state := func(node *process) string {
		t.Helper()
		list := call(t, bootstrap, "GET", node.origin+"/v1/tenants", "").want(t, http.StatusOK)
		return list.body + "\n" + must(t, map[string]string{"HEADGATE_URL": node.origin, "HEADGATE_TOKEN": bootstrap}, "export")
	}
	node := launch(t, settings).serving()
	put(node, "before", "Before")
	want := state(node)
	s.run(engine + "-backup")
	put(node, "after", "After")
	call(t, bootstrap, "DELETE", node.origin+"/v1/tenants/before", "", "If-Match", "*").want(t, http.StatusNoContent)
	if state(node) == want {
		t.Fatal("the changes are not visible")
	}
	node.interrupt()
	out := s.run(engine + "-restore")
	if !strings.Contains(out, "current") || !strings.Contains(out, "the audit log is as it was written") {
		t.Errorf("restore: %s", out)
	}
	again := launch(t, settings).serving()
	if got := state(again); got != want {
		t.Errorf("after the restore:\n%s\nbefore:\n%s", got, want)
	}
}

func TestProductionCommandsOfDoctorUpgradeAndKeys(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADDR": "127.0.0.1:0"}
	s := newShell(t, settings)
	if out := s.run("upgrade"); !strings.Contains(out, "current") {
		t.Errorf("upgrade: %s", out)
	}
	if out := s.run("doctor"); !strings.Contains(out, "schema version") {
		t.Errorf("doctor: %s", out)
	}
	must(t, settings, "key", "create", "--name", "ci-1")
	id := regexp.MustCompile(`(?m)^(\S+)\s.*\bci-1\b`).FindStringSubmatch(must(t, settings, "key", "list"))
	if id == nil {
		t.Fatal("key list lacks ci-1")
	}
	backup := t.TempDir()
	s.run("keys", "BACKUP="+backup, "OLD_KEY_ID="+id[1])
	token, err := os.ReadFile(filepath.Join(backup, "key"))
	if err != nil || !strings.Contains(string(token), "hg_op_") {
		t.Errorf("the new key is %q: %v", token, err)
	}
	if list := must(t, settings, "key", "list"); !regexp.MustCompile(`ci-1\b.*revoked`).MatchString(list) {
		t.Errorf("ci-1 is not revoked: %s", list)
	}
	out := s.run("secrets-key", "HEADGATE_SECRETS_KEY="+strings.Repeat("n", 32), "HEADGATE_SECRETS_KEY_OLD="+strings.Repeat("o", 32))
	if !strings.Contains(out, "REENCRYPTED") {
		t.Errorf("secrets-key: %s", out)
	}
}

func TestBackupNeedsSQLiteAndANewFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "backup.db")
	if _, err := command(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder)}, "", "backup", file); err == nil || !strings.Contains(err.Error(), "HEADGATE_DATABASE_URL") {
		t.Errorf("without a database: %v", err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) > 0 {
		t.Errorf("a backup without a database made %v", entries)
	}
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder)}
	must(t, settings, "migrate")
	must(t, settings, "backup", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup is %v: %v", info, err)
	}
	if _, err := command(t, settings, "", "backup", file); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over a file: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the former backup is gone: %v", err)
	}
	postgres := map[string]string{"HEADGATE_DATABASE_URL": servertest.Postgres(t)}
	if _, err := command(t, postgres, "", "backup", filepath.Join(folder, "pg")); err == nil || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("of Postgres: %v", err)
	}
}
