package headgate_test

import (
	"os"
	"regexp"
	"testing"
)

// A release has one version: make release reads that of openapi.yaml, and builds the program with it.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	versions := map[string]string{}
	for _, place := range []struct{ file, pattern string }{
		{"openapi.yaml", `(?m)^  version: ([0-9.]+)`},
		{"CHANGELOG.md", `(?m)^## (\S+)`},
		{"deploy/helm/headgate/Chart.yaml", `(?m)^version: (\S+)`},
		{"deploy/helm/headgate/Chart.yaml", `(?m)^appVersion: "(\S+)"`},
	} {
		text, err := os.ReadFile(place.file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(place.pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no version", place.file)
		}
		versions[string(found[1])] += place.file + " "
	}
	if len(versions) != 1 {
		t.Errorf("the versions differ: %v", versions)
	}
}
