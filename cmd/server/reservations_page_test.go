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
	"time"
)

// The test applies the plans of these pages and sends their requests in order. The responses
// have the members that the page shows. {decision_id} is the ID from the previous response.
func TestPagesOfRequests(t *testing.T) {
	t.Parallel()
	for page, requests := range map[string]int{
		"docs/reservations.md": 4, "docs/refunds.md": 3, "docs/concurrency.md": 7, "docs/leaky-bucket.md": 2, "docs/grants.md": 6,
		"docs/soft-limits.md": 3, "docs/monthly-quotas.md": 4,
	} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			playPage(t, page, requests)
		})
	}
}

// dayOfThePage is the day on which a grant of a page ends. playPage replaces it by inAMonth, so that it is
// in the future whenever the test runs.
const dayOfThePage = "2027-01-01T00:00:00Z"

var inAMonth = time.Now().Add(30 * 24 * time.Hour).UTC().Format(time.RFC3339)

func playPage(t *testing.T, page string, count int) {
	t.Helper()
	requests, answers := blocksOf(t, page, "http"), blocksOf(t, page, "json")
	if len(requests) != count || len(answers) != len(requests) {
		t.Fatalf("%d requests and %d answers", len(requests), len(answers))
	}
	plan := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(plan, []byte(blocksOf(t, page, "yaml")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	settings := cliServer(t)
	if _, err := command(t, settings, "", "apply", "-f", plan); err != nil {
		t.Fatal(err)
	}
	decision := ""
	for i, text := range requests {
		line, body, _ := strings.Cut(strings.TrimSpace(text), "\n")
		method, path, _ := strings.Cut(line, " ")
		r, err := http.NewRequestWithContext(t.Context(), method, settings["HEADGATE_URL"]+strings.ReplaceAll(path, "{decision_id}", decision), strings.NewReader(strings.ReplaceAll(body, dayOfThePage, inAMonth)))
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
		members, _ := got.(map[string]any)
		decision, _ = members["decision_id"].(string)
	}
}

// HEADGATE_MAX_RESERVATIONS bounds the outstanding reservations of a tenant.
func TestMaxReservations(t *testing.T) {
	t.Parallel()
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_MAX_RESERVATIONS": "1",
	})
	body := func(id string) string {
		return `{"id": "` + id + `", "ttl_ms": 60000, "tenant": "demo", "method": "GET", "path": "/v1/hello"}`
	}
	for _, step := range []struct {
		method, path, body string
		status             int
	}{
		{http.MethodPost, "/v1/reservations", body("first"), http.StatusCreated},
		{http.MethodPost, "/v1/reservations", body("second"), http.StatusServiceUnavailable},
		{http.MethodDelete, "/v1/reservations/first?tenant=demo", "", http.StatusOK},
		{http.MethodPost, "/v1/reservations", body("second"), http.StatusCreated},
	} {
		a := call(t, bootstrap, step.method, node.origin+step.path, step.body)
		if a.status != step.status {
			t.Errorf("%s %s %s: %d %s, want %d", step.method, step.path, step.body, a.status, a.body, step.status)
		}
		if a.status == http.StatusServiceUnavailable && !strings.Contains(a.body, "too_many_reservations") {
			t.Errorf("a second reservation: %s", a.body)
		}
	}
}
