//go:build !quick

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page about costs is played: its plan is applied, its commands run in order, and the
// answers have the members that the page shows.
func TestCostsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := func(language string) (list []string) {
		for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
			list = append(list, m[1])
		}
		return list
	}
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(blocks("yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, b := range blocks("json") {
		want = append(want, strings.Split(strings.TrimSpace(b), "\n")...)
	}
	settings, answers := cliServer(t), 0
	for line := range strings.Lines(strings.Join(blocks("sh"), "")) {
		args := words(strings.Replace(strings.TrimSpace(line), "plan.yaml", plan, 1))
		out, err := command(t, settings, "", args[1:]...)
		if args[1] != "check" {
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			continue
		}
		type answer struct {
			Limits []struct {
				Policy          string
				Cost, Remaining int64
			}
		}
		var got, shown answer
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if err := json.Unmarshal([]byte(want[answers]), &shown); err != nil {
			t.Fatal(err)
		}
		if a, b := toJSON(t, got), toJSON(t, shown); a != b {
			t.Errorf("%s: %s, the page shows %s", line, a, b)
		}
		answers++
	}
	if answers != 3 || len(want) != answers {
		t.Errorf("%d checks, and the page shows %d answers", answers, len(want))
	}
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
