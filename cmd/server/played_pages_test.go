//go:build !quick

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The test applies the plans and runs the commands of these pages in order. The responses have
// the members that the pages show.
func TestPlayedPages(t *testing.T) {
	t.Parallel()
	for page, checks := range map[string]int{"costs": 5, "idempotency": 3} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../../docs/" + page + ".md")
			if err != nil {
				t.Fatal(err)
			}
			blocks := func(language string) (list []string) {
				for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
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
				var got, shown any
				if err := json.Unmarshal([]byte(out), &got); err != nil {
					t.Fatalf("%s: %v: %s", line, err, out)
				}
				if err := json.Unmarshal([]byte(want[answers]), &shown); err != nil {
					t.Fatal(err)
				}
				if !has(got, shown) {
					t.Errorf("%s: %s, the page shows %s", line, out, want[answers])
				}
				answers++
			}
			if answers != checks || len(want) != checks {
				t.Errorf("%d checks, and the page shows %d answers", answers, len(want))
			}
		})
	}
}

// has reports whether got has all members of shown. Lists must have the same length.
func has(got, shown any) bool {
	switch s := shown.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for name, value := range s {
			ok = ok && has(g[name], value)
		}
		return ok
	case []any:
		g, ok := got.([]any)
		return ok && slices.EqualFunc(g, s, has)
	}
	return got == shown
}
