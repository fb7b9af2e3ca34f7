package grafanatest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct{ List []struct{ Expr string } }
	Panels      []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct{ Expr, LegendFormat string }
}

func dashboardText(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "headgate-dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func theDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal(dashboardText(t), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// grafanas replaces the variable that Grafana knows and the parser does not.
var grafanas = strings.NewReplacer("$__rate_interval", "5m")

var (
	inLegend    = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
	labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
)

// dashboardProblems are the expressions of the dashboard that cannot be meant.
func (c catalogue) dashboardProblems(t *testing.T) (found []string) {
	t.Helper()
	d := theDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			labels, problems := c.inspect(grafanas.Replace(target.Expr))
			for _, m := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !labels[m[1]] {
					problems = append(problems, "the legend names "+m[1])
				}
			}
			for _, problem := range problems {
				found = append(found, p.Title+": "+problem)
			}
		}
	}
	for _, a := range d.Annotations.List {
		_, problems := c.inspect(a.Expr)
		found = append(found, problems...)
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			found = append(found, v.Name+" is not asked for with label_values: "+v.Definition)
			continue
		}
		_, problems := c.inspect(fmt.Sprintf("count by (%s) (%s)", m[2], m[1]))
		found = append(found, problems...)
	}
	return found
}

func TestTheDashboardShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, problem := range theCatalogue(t).dashboardProblems(t) {
		t.Error(problem)
	}
}

func TestEveryPanelSaysWhatItShows(t *testing.T) {
	t.Parallel()
	ids := map[int]bool{}
	for _, p := range theDashboard(t).Panels {
		if p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: the id %d is not its own", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Title == "" {
			t.Errorf("panel %d has no title", p.ID)
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s lacks a description, a unit or a query", p.Title)
		}
		for _, target := range p.Targets {
			for _, variable := range []string{`job=~"$job"`, `instance=~"$instance"`} {
				if !strings.Contains(target.Expr, variable) {
					t.Errorf("%s does not keep to the chosen %s", p.Title, variable)
				}
			}
		}
	}
}

// What soft policies let pass is drawn, by mode.
func TestSoftLimitsAreDrawn(t *testing.T) {
	t.Parallel()
	for _, p := range theDashboard(t).Panels {
		for _, target := range p.Targets {
			if strings.Contains(target.Expr, "headgate_soft_limited_total{") && strings.Contains(target.LegendFormat, "{{mode}}") {
				return
			}
		}
	}
	t.Error("no panel shows headgate_soft_limited_total")
}

func TestPanelsStandBesideEachOther(t *testing.T) {
	t.Parallel()
	panels := theDashboard(t).Panels
	for i, p := range panels {
		a := p.GridPos
		if a.W < 1 || a.H < 1 || a.X < 0 || a.Y < 0 || a.X+a.W > 24 {
			t.Errorf("%s stands outside of the grid: %+v", p.Title, a)
		}
		for _, q := range panels[i+1:] {
			b := q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s and %s stand on each other", p.Title, q.Title)
			}
		}
	}
}

func TestTheDashboardKeepsItsRowsAndItsName(t *testing.T) {
	t.Parallel()
	d := theDashboard(t)
	if d.UID != "headgate" || d.Title != "Headgate" {
		t.Errorf("it is %s, %q; links to it would break", d.UID, d.Title)
	}
	var rows, variables []string
	for _, p := range d.Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if want := []string{"Overview", "Fleet", "Redis", "Counting", "Go runtime"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	if want := []string{"datasource", "job", "instance"}; !slices.Equal(variables, want) {
		t.Errorf("the variables are %q, want %q", variables, want)
	}
}

// The dashboard names no data source, because its name differs between installations.
func TestNoDataSourceIsNamed(t *testing.T) {
	t.Parallel()
	var whole any
	if err := json.Unmarshal(dashboardText(t), &whole); err != nil {
		t.Fatal(err)
	}
	seen := 0
	walk(whole, func(name string, value any) {
		if name != "datasource" {
			return
		}
		seen++
		if got, _ := value.(map[string]any); got["uid"] != "${datasource}" || got["type"] != "prometheus" {
			t.Errorf("a data source is named: %v", value)
		}
	})
	if seen == 0 {
		t.Error("no data source was found at all")
	}
}

// walk shows every member of every object in a JSON value.
func walk(v any, see func(name string, value any)) {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			see(name, value)
			walk(value, see)
		}
	case []any:
		for _, value := range v {
			walk(value, see)
		}
	}
}
