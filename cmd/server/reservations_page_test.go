//go:build !quick

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The session of docs/reservations.md is played: the plan is applied, the requests are sent in
// order, and the answers have the members that the page shows.
func TestReservationsPage(t *testing.T) {
	t.Parallel()
	requests, answers := blocksOf(t, "docs/reservations.md", "http"), blocksOf(t, "docs/reservations.md", "json")
	if len(requests) != 4 || len(answers) != len(requests) {
		t.Fatalf("%d requests and %d answers", len(requests), len(answers))
	}
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(blocksOf(t, "docs/reservations.md", "yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := cliServer(t)
	if _, err := command(t, settings, "", "apply", "-f", plan); err != nil {
		t.Fatal(err)
	}
	for i, text := range requests {
		line, body, _ := strings.Cut(strings.TrimSpace(text), "\n")
		method, path, _ := strings.Cut(line, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, settings["HEADGATE_URL"]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+bootstrap)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		var got, shown any
		if err != nil || json.Unmarshal(out, &got) != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		if err := json.Unmarshal([]byte(answers[i]), &shown); err != nil {
			t.Fatal(err)
		}
		if !has(got, shown) {
			t.Errorf("%s: %s, the page shows %s", line, out, answers[i])
		}
	}
}
