package admin

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/web/views"
)

// Every action belongs to a group that the log can be filtered by.
func TestActionsHaveGroups(t *testing.T) {
	t.Parallel()
	for action := range actions {
		group, _, _ := strings.Cut(action, ".")
		if !slices.ContainsFunc(auditGroups, func(o views.Option) bool { return o.Value == group }) && group != "sign_in" {
			t.Errorf("%s is in no group", action)
		}
	}
}

func TestFieldChanges(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		before, after string
		want          string
	}{
		{`{"a":1,"b":"x"}`, `{"a":1,"b":"y"}`, "changed b x→y"},
		{`{"a":1}`, `{"a":1.0}`, "changed a 1→1.0"},
		{``, `{"a":true,"b":null,"c":""}`, "added a →yes;added b →none;added c →empty"},
		{`{"a":[1,2]}`, ``, "removed a 1, 2→"},
		{`{"p":[{"slug":"x","n":1},{"slug":"y","n":2}]}`, `{"p":[{"slug":"y","n":2},{"slug":"x","n":3}]}`, "changed p[x].n 1→3"},
		{`{"p":[{"slug":"x"},{"slug":"x"}]}`, `{"p":[{"slug":"x"}]}`, "removed p[1].slug x→;removed p[2].slug x→;added p[x].slug →x"},
		{`{"at":"0001-01-01T00:00:00Z"}`, `{"at":"2026-11-21T09:00:00Z"}`, "changed at never→2026-11-21T09:00:00Z"},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`, "added a.b →{};removed a.b.c 1→"},
		{`no json`, `"text"`, "changed document no json→text"},
		{`{"n":12345678901234567890}`, `{"n":12345678901234567891}`, "changed n 12345678901234567890→12345678901234567891"},
		{``, ``, ""},
	} {
		var got []string
		for _, c := range fieldChanges(json.RawMessage(test.before), json.RawMessage(test.after)) {
			got = append(got, c.What+" "+c.Field+" "+c.Before+"→"+c.After)
		}
		if strings.Join(got, ";") != test.want {
			t.Errorf("%s to %s: %q, want %q", test.before, test.after, strings.Join(got, ";"), test.want)
		}
	}
}
