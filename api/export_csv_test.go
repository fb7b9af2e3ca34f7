package api_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/audit"
)

// table reads a file and returns its rows as maps by column.
func (w *world) table(key, path string) []map[string]string {
	w.t.Helper()
	a := w.do(call{method: "GET", path: path, key: key})
	if a.status != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), "text/csv") ||
		!strings.HasSuffix(a.header.Get("Content-Disposition"), `.csv"`) {
		w.t.Fatalf("%s: %d %v %s", path, a.status, a.header, a.body)
	}
	lines, err := csv.NewReader(strings.NewReader(a.body)).ReadAll()
	must(w.t, err)
	rows := make([]map[string]string, len(lines)-1)
	for i, line := range lines[1:] {
		rows[i] = map[string]string{}
		for c, name := range lines[0] {
			rows[i][name] = line[c]
		}
	}
	return rows
}

// Each file has all rows of the listing that has its filters, over several reads.
func TestDownloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.traffic()
	for i := range 1100 {
		must(t, w.store.WriteAudit(t.Context(), audit.Entry{Action: "setting.put", Object: fmt.Sprintf("=%d", i)}))
	}
	settings := w.table(w.operator, "/v1/audit.csv?action=setting.put")
	seen := map[string]bool{}
	for _, row := range settings {
		seen[row["line"]] = true
		if !strings.HasPrefix(row["object"], "'=") {
			t.Fatalf("a spreadsheet runs %q", row["object"])
		}
	}
	if len(settings) != 1100 || len(seen) != 1100 {
		t.Errorf("%d rows, %d different", len(settings), len(seen))
	}
	for query, want := range map[string]int{"": 8, "reason=blocked": 2, "policy=login-per-ip": 5, "route=/v1/reports": 2, "from=2026-11-21T09:00:01Z": 0, "policy=nothing": 0} {
		rows := w.table(w.acmeRead, "/v1/analytics/refusals.csv?"+query)
		if len(rows) != want {
			t.Errorf("%s: %d denials, want %d", query, len(rows), want)
		}
		for _, row := range rows {
			if row["tenant"] != "acme" || row["plan"] != "pro" || row["decision_id"] == "" || !strings.HasPrefix(row["attributes"], "{") {
				t.Errorf("%s: %v", query, row)
			}
		}
	}
	for step, at := range map[string]string{"": "2026-11-21T09:00:00Z", "&step=hour": "2026-11-21T09:00:00Z", "&step=minute": "2026-11-21T09:00:00Z", "&step=day": "2026-11-21T00:00:00Z"} {
		rows := w.table(w.operator, "/v1/tenants/acme/usage.csv?"+span+step)
		if len(rows) != 2 {
			t.Errorf("%q: %v", step, rows)
			continue
		}
		if r := rows[0]; r["policy"] != "login-per-ip" || r["at"] != at || r["requests"] != "15" || r["allowed"] != "10" || r["limited"] != "5" || r["time_zone"] != "UTC" {
			t.Errorf("%q: %v", step, r)
		}
	}
	if rows := w.table(w.acmeRead, "/v1/tenants/acme/usage.csv"); len(rows) != 2 {
		t.Errorf("the last day: %v", rows)
	}
}

// Faults in the query are those of the listings, before a row is sent.
func TestDownloadFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/v1/audit.csv?limit=1":                                `400 "pointer":"limit"`,
		"/v1/audit.csv?from=today":                             `400 "pointer":"from"`,
		"/v1/audit.csv?tenant=nobody":                          `404 `,
		"/v1/analytics/refusals.csv?reason=fine":               `400 "pointer":"reason"`,
		"/v1/analytics/refusals.csv?cursor=a":                  `400 "pointer":"cursor"`,
		"/v1/tenants/acme/usage.csv?step=second":               `400 "pointer":"step"`,
		"/v1/tenants/acme/usage.csv?from=2010-01-01T00:00:00Z": `400 "pointer":"from"`,
		"/v1/tenants/acme/usage.csv?from=2026-11-21T09:00:00Z": `400 "pointer":"from"`, // the range is empty: it starts now
		"/v1/tenants/nobody/usage.csv":                         `404 `,
	} {
		a := w.do(call{method: "GET", path: path, key: w.operator})
		status, pointer, _ := strings.Cut(want, " ")
		if fmt.Sprint(a.status) != status || !strings.Contains(a.body, pointer) || a.header.Get("Content-Disposition") != "" {
			t.Errorf("%s: %d %s, want %s", path, a.status, a.body, want)
		}
	}
	for _, path := range []string{"/v1/audit.csv?tenant=globex", "/v1/analytics/refusals.csv?tenant=globex", "/v1/tenants/globex/usage.csv"} {
		if a := w.do(call{method: "GET", path: path, key: w.acmeRead}); a.status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// A tenant key cannot see which user of the operator changed the tenant, neither in the list
// nor in the file.
func TestTenantsKeySeesNoOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	for _, by := range []audit.Actor{{Kind: "user", ID: audit.NewID(), Name: "ada@operator.example"}, {Kind: "operator_key", ID: audit.NewID(), Name: "deploy"}, {Kind: "tenant_key", ID: audit.NewID(), Name: "our key"}} {
		ctx := audit.With(t.Context(), by, audit.Origin{Address: "198.51.100.7", RequestID: "r"})
		must(t, w.store.WriteAudit(ctx, audit.Entry{Action: "block.create", Object: "b", TenantID: acme.ID, Actor: by, Origin: audit.Origin{Address: "198.51.100.7", RequestID: "r"}}))
	}
	for _, path := range []string{"/v1/audit?action=block.create", "/v1/audit.csv?action=block.create"} {
		own, all := w.do(call{method: "GET", path: path, key: w.acmeRead}), w.do(call{method: "GET", path: path, key: w.operator})
		for _, secret := range []string{"ada@operator.example", "deploy"} {
			if strings.Contains(own.body, secret) || !strings.Contains(all.body, secret) {
				t.Errorf("%s: %s\n%s", path, own.body, all.body)
			}
		}
		if strings.Count(own.body, "198.51.100.7") != 1 || !strings.Contains(own.body, "our key") {
			t.Errorf("%s: %s", path, own.body)
		}
	}
}

// While all slots of a tenant are in use, its expensive operations get status 503 with
// Retry-After. Other tenants are not affected. While all slots of the node are in use, this
// holds for the expensive operations of all tenants. Cheap operations always work.
func TestExpensiveOperationsAreBounded(t *testing.T) {
	t.Parallel()
	slots := new(admission.Slots)
	w := newWorld(t, func(c *api.Config) { c.Slots, c.Timeout = slots, 5*time.Second })
	acme, err := w.tenants.Tenant(t.Context(), "acme")
	must(t, err)
	take := func(party string) {
		for range admission.MaxSlotsEach {
			if _, ok := slots.Take(t.Context(), party); !ok {
				t.Fatal("no slot")
			}
		}
	}
	downloads := []string{"/v1/audit.csv", "/v1/analytics/refusals.csv", "/v1/tenants/acme/usage.csv"}
	take(acme.ID)
	w.busy(w.acmeRead, downloads...)
	for _, path := range downloads {
		if a := w.do(call{method: "GET", path: path, key: w.operator}); a.status != http.StatusOK {
			t.Errorf("%s of the operator: %d", path, a.status)
		}
	}
	for slots.Taken() < admission.MaxSlots {
		take(fmt.Sprint(slots.Taken()))
	}
	w.busy(w.operator, append(downloads, "/v1/plans/pro/draft/preview", "/v1/configuration")...)
	for _, key := range []string{w.acmeRead, w.operator} {
		if a := w.do(call{method: "GET", path: "/v1/audit", key: key}); a.status != http.StatusOK {
			t.Errorf("the listing: %d", a.status)
		}
	}
	if slots.Taken() != admission.MaxSlots {
		t.Errorf("%d slots are taken", slots.Taken())
	}
}

// busy sends a GET to each path at the same time, and expects status 503 with Retry-After.
func (w *world) busy(key string, paths ...string) {
	w.t.Helper()
	var sent sync.WaitGroup
	for _, path := range paths {
		sent.Go(func() {
			a := w.do(call{method: "GET", path: path, key: key})
			if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "5" || !strings.Contains(a.body, "too many downloads") {
				w.t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
			}
		})
	}
	sent.Wait()
}
