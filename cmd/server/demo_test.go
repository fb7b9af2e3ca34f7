package main

import (
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// flagsOf are the flags of a command, by its path.
func flagsOf(t *testing.T, path string) map[string]*kong.Flag {
	t.Helper()
	p := program{getenv: func(string) string { return "" }, stdin: strings.NewReader("")}
	parser, err := p.parser(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Leaves(false) {
		if command.FullPath() == "headgate "+path {
			flags := map[string]*kong.Flag{}
			for _, f := range command.Flags {
				flags[f.Name] = f
			}
			return flags
		}
	}
	t.Fatalf("there is no command %q", path)
	return nil
}

// The demo takes every setting of serve, with the same defaults and the same
// words, but for the database: that is its own.
func TestDemoSettings(t *testing.T) {
	t.Parallel()
	serve, demo, remove := flagsOf(t, "serve"), flagsOf(t, "demo run"), flagsOf(t, "demo remove")
	if len(serve) != len(demo) {
		t.Errorf("serve has %d flags, demo has %d", len(serve), len(demo))
	}
	for name, f := range serve {
		other := demo[name]
		if other == nil {
			t.Errorf("demo has no --%s", name)
			continue
		}
		if name != "database-url" && (f.Default != other.Default || f.Help != other.Help) {
			t.Errorf("--%s of serve is %q (%s), of demo %q (%s)", name, f.Help, f.Default, other.Help, other.Default)
		}
	}
	if got := serve["database-url"].Default; got != "sqlite://data/headgate.db" {
		t.Errorf("serve keeps its database at %s", got)
	}
	for _, flags := range []map[string]*kong.Flag{demo, remove} {
		if got := flags["database-url"].Default; got != demoDatabase {
			t.Errorf("the demo keeps its database at %s", got)
		}
	}
	for _, command := range [][]string{{"demo", "run"}, {"demo", "remove"}} {
		if help := helpOf(t, command...); !strings.Contains(strings.Join(strings.Fields(help), ""), "Default:"+demoDatabase) {
			t.Errorf("the help of %v does not say where the database is:\n%s", command, help)
		}
	}
	if help := helpOf(t, "demo"); !strings.Contains(help, "demo remove") || !strings.Contains(help, "demo run") {
		t.Errorf("the help of demo:\n%s", help)
	}
}

// Without a demo there is nothing to remove, and that is no failure.
func TestDemoRemoveNothing(t *testing.T) {
	t.Parallel()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir())}
	must(t, settings, "key", "create", "--name", "ci")
	if out := must(t, settings, "demo", "remove"); !strings.Contains(out, "nothing was removed") {
		t.Errorf("demo remove: %s", out)
	}
	if list := must(t, settings, "key", "list"); !strings.Contains(list, "ci") {
		t.Errorf("keys: %s", list)
	}
	if _, err := command(t, map[string]string{"HEADGATE_DATABASE_URL": "mysql://nothing"}, "", "demo", "remove"); err == nil || !strings.Contains(err.Error(), "HEADGATE_DATABASE_URL") {
		t.Errorf("a wrong setting: %v", err)
	}
}
