package migrations_test

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/migrations"
)

func names(t *testing.T, files fs.FS, folder string) []string {
	t.Helper()
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestBothEnginesHaveTheSameStepsUpAndDown(t *testing.T) {
	t.Parallel()
	sqlite := names(t, migrations.SQLite, "sqlite")
	if diff := cmp.Diff(sqlite, names(t, migrations.Postgres, "postgres")); diff != "" {
		t.Errorf("sqlite and postgres differ (-sqlite +postgres):\n%s", diff)
	}
	form := regexp.MustCompile(`^(\d{6}_[a-z_]+)\.(up|down)\.sql$`)
	steps := map[string]int{}
	for _, name := range sqlite {
		m := form.FindStringSubmatch(name)
		if m == nil {
			t.Fatalf("%s is not named NNNNNN_words.up.sql or .down.sql", name)
		}
		steps[m[1]]++
	}
	for step, files := range steps {
		if files != 2 {
			t.Errorf("%s has %d files, want up and down", step, files)
		}
	}
	if len(steps) != migrations.Latest() {
		t.Errorf("%d steps, but the newest is %d: numbers have no gaps", len(steps), migrations.Latest())
	}
}

// Each file is run as one transaction by golang-migrate.
func TestNoStepManagesTransactions(t *testing.T) {
	t.Parallel()
	explicit := regexp.MustCompile(`(?im)^\s*(BEGIN\s*(TRANSACTION|WORK)?|COMMIT|END TRANSACTION)\s*;`)
	for folder, files := range map[string]fs.FS{"sqlite": migrations.SQLite, "postgres": migrations.Postgres} {
		for _, name := range names(t, files, folder) {
			text, err := fs.ReadFile(files, folder+"/"+name)
			if err != nil {
				t.Fatal(err)
			}
			if explicit.Match(text) {
				t.Errorf("%s/%s begins or commits by itself", folder, name)
			}
		}
	}
}
