package metrics

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// named finds a metric in the operators' page: its name, and its labels with or
// without a value.
var named = regexp.MustCompile("`(headgate_[a-z_]+)(?:\\{([^}]*)\\})?`")

// docs/operations.md names exactly the metrics of /metrics.
func TestOperationsNamesTheMetricsThatAreThere(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	families := scrape(t, everySeries())
	documented := map[string]bool{}
	for _, m := range named.FindAllStringSubmatch(string(page), -1) {
		family, there := families[m[1]]
		if !there {
			t.Errorf("docs/operations.md names %s, which /metrics does not show", m[1])
			continue
		}
		documented[m[1]] = true
		for label := range strings.SplitSeq(m[2], ",") {
			if label != "" && !shows(family, label) {
				t.Errorf("docs/operations.md names %s{%s}, which /metrics does not show", m[1], label)
			}
		}
	}
	for name := range families {
		if strings.HasPrefix(name, "headgate_") && !documented[name] {
			t.Errorf("docs/operations.md does not name %s", name)
		}
	}
}

// shows reports whether a series of the family has a label: name, or
// name="value".
func shows(family *dto.MetricFamily, label string) bool {
	name, value, exact := strings.Cut(label, "=")
	return slices.ContainsFunc(family.Metric, func(m *dto.Metric) bool {
		return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
			return l.GetName() == name && (!exact || `"`+l.GetValue()+`"` == value)
		})
	})
}
