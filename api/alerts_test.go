package api_test

import (
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/alerts"
	"github.com/headgate/headgate/internal/audit"
)

// One alert is read by its ID, and is the same as in the list.
func TestOneAlert(t *testing.T) {
	t.Parallel()
	w := newStrictWorld(t)
	rule := w.made(someAlertRule)
	incident := alerts.Incident{
		ID: audit.NewID(), RuleID: rule, Rule: alerts.Document{Name: "Acme is limited", Metric: alerts.Denials, Tenant: "acme", Threshold: 1},
		BeganAt: w.clock(), Value: 2, Peak: 3, Detail: "detail",
	}
	_, err := w.store.Advance(t.Context(), alerts.Advance{RuleID: rule, Seq: 1, Began: []alerts.Incident{incident}})
	must(t, err)
	one := w.do(call{method: "GET", path: "/v1/alerts/" + incident.ID, key: w.operator})
	all := w.do(call{method: "GET", path: "/v1/alerts", key: w.operator})
	var list struct{ Data []json.RawMessage }
	must(t, json.Unmarshal([]byte(all.body), &list))
	if one.status != 200 || len(list.Data) != 1 || one.body != string(list.Data[0])+"\n" {
		t.Errorf("%d %s\nin the list: %s", one.status, one.body, list.Data)
	}
	// A rule can be created from each template, with a policy if the template needs one.
	var found struct {
		Data []struct {
			Slug  string
			Rule  map[string]any
			Needs []string
		}
	}
	must(t, json.Unmarshal([]byte(w.do(call{method: "GET", path: "/v1/alert-templates", key: w.operator}).body), &found))
	for _, template := range found.Data {
		for _, member := range template.Needs {
			template.Rule[member] = "logins"
		}
		if metric := template.Rule["metric"]; metric == "quota_used" && template.Rule["each_tenant"] != true {
			t.Errorf("template %s does not watch each tenant", template.Slug)
		}
		body, err := json.Marshal(template.Rule)
		must(t, err)
		if a := w.do(call{method: "POST", path: "/v1/alert-rules", key: w.operator, body: string(body)}); a.status != 201 {
			t.Errorf("template %s: %d %s", template.Slug, a.status, a.body)
		}
	}
	if len(found.Data) < 10 {
		t.Errorf("%d templates", len(found.Data))
	}
}
