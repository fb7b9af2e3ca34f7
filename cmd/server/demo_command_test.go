package main

import (
	"os"
	"path/filepath"
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

// The demo has every setting of serve, with the same default and help, except the
// default of the database.
func TestDemoSettings(t *testing.T) {
	t.Parallel()
	serve, demo := flagsOf(t, "serve"), flagsOf(t, "demo")
	if len(serve)+1 != len(demo) || demo["reset"] == nil {
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
	if got := demo["database-url"].Default; got != demoDatabase {
		t.Errorf("the demo keeps its database at %s", got)
	}
	if help := helpOf(t, "demo"); !strings.Contains(strings.Join(strings.Fields(help), ""), "Default:"+demoDatabase) {
		t.Errorf("the help of demo does not say where the database is:\n%s", help)
	}
}

// The demo does not start on a database with other data, and does not change that data.
func TestDemoOfOtherData(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	settings := map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(folder), "HEADGATE_ADDR": "127.0.0.1:0"}
	must(t, settings, "key", "create", "--name", "ci")
	_, err := command(t, settings, "", "demo")
	if err == nil || !strings.Contains(err.Error(), "HEADGATE_DATABASE_URL") || !strings.Contains(err.Error(), "name an empty database") {
		t.Errorf("error %v", err)
	}
	if list := must(t, settings, "key", "list"); !strings.Contains(list, "ci") {
		t.Errorf("keys: %s", list)
	}
	if _, err := os.Stat(filepath.Join(folder, demoMarker)); err == nil {
		t.Error("the folder is marked as the demo's")
	}
	if _, err := command(t, map[string]string{"HEADGATE_DATABASE_URL": "mysql://nothing"}, "", "demo"); err == nil || !strings.Contains(err.Error(), "HEADGATE_DATABASE_URL") {
		t.Errorf("a wrong setting: %v", err)
	}
}

// A reset deletes a folder only if the demo made everything in it.
func TestDemoReset(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files []string
		want  string // part of the error; "": the folder is deleted
	}{
		"no folder":         {nil, ""},
		"the demo's folder": {[]string{"headgate.db", "headgate.db-wal", "headgate.db-shm", demoMarker}, ""},
		"no marker":         {[]string{"headgate.db"}, "has no file " + demoMarker},
		"another file":      {[]string{"headgate.db", "thesis.txt", demoMarker}, "thesis.txt"},
	} {
		folder := filepath.Join(t.TempDir(), "demo-data")
		for _, file := range test.files {
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(folder, file), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		d := demoCommand{serveCommand: serveCommand{serveSettings: serveSettings{databaseSettings: databaseSettings{DatabaseURL: sqliteIn(folder)}}}}
		err := d.reset()
		if test.want == "" {
			if _, stat := os.Stat(folder); err != nil || stat == nil {
				t.Errorf("%s: error %v; the folder is there: %t", name, err, stat == nil)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "nothing was deleted") {
			t.Errorf("%s: error %v", name, err)
		}
		for _, file := range test.files {
			if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	d := demoCommand{serveCommand: serveCommand{serveSettings: serveSettings{databaseSettings: databaseSettings{DatabaseURL: "postgres://localhost/x"}}}}
	if err := d.reset(); err == nil || !strings.Contains(err.Error(), "drop and create") {
		t.Errorf("Postgres: %v", err)
	}
}
