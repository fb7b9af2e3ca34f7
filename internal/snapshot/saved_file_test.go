package snapshot

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
)

// A file is read as it was written. A file that is damaged, readable by others, of another
// format, or of another database is not used.
func TestFile(t *testing.T) {
	t.Parallel()
	w := smallWorld(3)
	w.putOverride(anOverride("o", 1, "p1"))
	w.putEntry(anEntry("e", 1, exceptions.Deny, "ann"))
	w.putBlock(aBlock("b", 2, "p1", "bob"))
	w.putPlan(PublishedPlan{ID: "broken", Slug: "broken", Version: 1, Broken: "no JSON"})
	changes := w.changes()
	path := filepath.Join(t.TempDir(), "snapshot")
	want := Saved{At: time.Now().UTC(), Database: "a", Changes: changes}
	for range 2 { // the second replaces the first
		if err := WriteFile(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := ReadFile(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b plans.Document) bool { return cmp.Equal(a.Policies(), b.Policies(), cmpopts.EquateEmpty()) })
	if diff := cmp.Diff(want, got, same, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if _, report := Compile(nil, got.Changes, Options{Full: true}); report.Problems == 0 || report.Plans < 1 || report.Held != nil {
		t.Errorf("%+v", report)
	}
	if _, err := ReadFile(path, "b"); err == nil {
		t.Error("a file of another database is read")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if left, err := filepath.Glob(path + ".*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	for name, change := range map[string]func([]byte) []byte{
		"a bit": func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "cut": func(b []byte) []byte { return b[:len(b)-1] },
		"form": func(b []byte) []byte { b[len("headgate snapshot ")]++; return b }, "empty": func([]byte) []byte { return nil },
	} {
		bad := path + name
		if err := os.WriteFile(bad, change(append([]byte(nil), text...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFile(bad, "a"); err == nil {
			t.Errorf("%s: the file is read", name)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, "a"); err == nil {
		t.Error("a file that others may read is read")
	}
}

// A node that is killed while it writes leaves a partial file. Another write removes it when it is
// old, and leaves alone the file of a node that may still be writing, and other files.
func TestWriteFileRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot")
	old, young, other := path+".1.partial", path+".2.partial", path+".old"
	for _, name := range []string{old, young, other} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if name != young {
			past := time.Now().Add(-2 * time.Hour)
			if err := os.Chtimes(name, past, past); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := WriteFile(path, Saved{At: time.Now(), Database: "d"}); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"snapshot", "snapshot.2.partial", "snapshot.old"}; !slices.Equal(names, want) {
		t.Errorf("the folder has %q, want %q", names, want)
	}
}
