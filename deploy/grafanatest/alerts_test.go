package grafanatest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// theAlerts reads the rules as Prometheus does, templates included.
func theAlerts(t *testing.T) (alerts []rulefmt.Rule) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}), promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || t.Failed() {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		alerts = append(alerts, g.Rules...)
	}
	if len(alerts) == 0 {
		t.Fatal("there is no alert")
	}
	return alerts
}

var inAnnotation = regexp.MustCompile(`\$labels\.(\w+)`)

// alertProblems are the expressions of the alerts that cannot be meant.
func (c catalogue) alertProblems(t *testing.T) (found []string) {
	t.Helper()
	for _, a := range theAlerts(t) {
		labels, problems := c.inspect(a.Expr)
		for name, text := range a.Annotations {
			for _, m := range inAnnotation.FindAllStringSubmatch(text, -1) {
				if !labels[m[1]] {
					problems = append(problems, name+" names the label "+m[1])
				}
			}
		}
		for _, problem := range problems {
			found = append(found, a.Alert+": "+problem)
		}
	}
	return found
}

func TestTheAlertsWatchWhatIsThere(t *testing.T) {
	t.Parallel()
	for _, problem := range theCatalogue(t).alertProblems(t) {
		t.Error(problem)
	}
}

const runbook = "https://github.com/headgate/headgate/blob/main/docs/operations.md#"

func TestEveryAlertTellsWhatToDo(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	there, inRunbook := anchors(string(page)), rowsOfAlerts(string(page))
	names := map[string]bool{}
	for _, a := range theAlerts(t) {
		if names[a.Alert] {
			t.Errorf("two alerts are named %s", a.Alert)
		}
		names[a.Alert] = true
		if s := a.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: the severity is %q", a.Alert, s)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" || a.For == 0 {
			t.Errorf("%s lacks a summary, a description or a duration", a.Alert)
		}
		section, ours := strings.CutPrefix(a.Annotations["runbook_url"], runbook)
		if !ours || !there[section] {
			t.Errorf("%s: no section %s", a.Alert, a.Annotations["runbook_url"])
		}
		if inRunbook[a.Alert] != a.Labels["severity"] {
			t.Errorf("docs/operations.md has %s with the severity %q, it is %q", a.Alert, inRunbook[a.Alert], a.Labels["severity"])
		}
		delete(inRunbook, a.Alert)
	}
	for name := range inRunbook {
		t.Errorf("docs/operations.md tells what to do at %s, which is no alert", name)
	}
}

var (
	runbookRow  = regexp.MustCompile("(?m)^\\| ((?:`Headgate[A-Za-z]+`(?:, )?)+) \\| (page|ticket) \\| \\S")
	inBackticks = regexp.MustCompile("`([A-Za-z]+)`")
)

// rowsOfAlerts gives the severity of each alert in a page's table of what to do.
func rowsOfAlerts(page string) map[string]string {
	found := map[string]string{}
	for _, row := range runbookRow.FindAllStringSubmatch(page, -1) {
		for _, name := range inBackticks.FindAllStringSubmatch(row[1], -1) {
			found[name[1]] = row[2]
		}
	}
	return found
}

var (
	headline   = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	notInLinks = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the names under which a page's sections can be linked.
func anchors(page string) set {
	found := set{}
	for _, m := range headline.FindAllStringSubmatch(page, -1) {
		text := notInLinks.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(text, " ", "-")] = true
	}
	return found
}

func TestAnchors(t *testing.T) {
	t.Parallel()
	if got := anchors("# Operations\n\n## What fails, what `it` then does\ntext\n"); got.String() != "operations,what-fails-what-it-then-does" {
		t.Errorf("found %s", got)
	}
}

// The configuration beside them is one that Prometheus starts with.
func TestPrometheusUnderstandsItsConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "provisioning", "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(string(text), promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.ScrapeConfigs) != 1 || cfg.ScrapeConfigs[0].JobName != "headgate" {
		t.Error("the job is not named as the alerts expect")
	}
}
