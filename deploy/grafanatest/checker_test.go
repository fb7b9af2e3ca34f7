package grafanatest

import (
	"strings"
	"testing"
)

const sample = `
# name type labels
requests_total counter outcome=allowed|refused,reason
age_seconds gauge
take_seconds histogram
pauses_seconds summary
`

// The checker finds each kind of mistake, which the other tests rely on.
func TestTheCheckerFindsMistakes(t *testing.T) {
	t.Parallel()
	c, err := readCatalogue(sample)
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`sum by (outcome) (rate(requests_total{job="x",reason="ok"}[5m]))`:               "",
		`histogram_quantile(0.9, sum by (le, instance) (rate(take_seconds_bucket[5m])))`: "",
		`max(pauses_seconds{quantile="1"}) + 1 > 0`:                                      "",
		`rate(take_seconds_sum[5m]) / rate(take_seconds_count[5m])`:                      "",
		`sum(rate(requests_total[5m])) without (job)`:                                    "",
		`sum by (job) (age_seconds) / on (job) sum by (job, instance) (age_seconds)`:     "",
		`absent(up{job="x"})`:                                           "",
		`time() - age_seconds`:                                          "",
		`sum(rate(request_total[5m]))`:                                  `no metric "request_total"`,
		`take_seconds`:                                                  `no metric "take_seconds"`,
		`{__name__=~"requests.*"}`:                                      "no metric",
		`requests_total{result="ok"}`:                                   "no label result",
		`requests_total{outcome="denied"}`:                              `outcome is never "denied"`,
		`sum by (tenant) (age_seconds)`:                                 "no label tenant",
		`sum by (reason) (sum by (outcome) (rate(requests_total[5m])))`: "no label reason",
		`histogram_quantile(0.9, sum by (instance) (rate(take_seconds_bucket[5m])))`: "no label le",
		`rate(age_seconds[5m])`:                               "no counter",
		`rate(requests_total[5m]) / age_seconds`:              "never meet",
		`age_seconds * on (outcome) age_seconds`:              "no label outcome",
		`count(count by (outcome, version) (requests_total))`: "no label version",
		`absent(down)`:                                       `no metric "down"`,
		`sum(rate(requests_total[5m])`:                       "unclosed",
		`avg_over_time(sum by (place) (age_seconds)[5m:1m])`: "no label place",
	} {
		_, problems := c.inspect(expression)
		got := strings.Join(problems, "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %q", expression, got, want)
		}
	}
}

func TestTheCheckerTellsLabelsOfResults(t *testing.T) {
	t.Parallel()
	c, err := readCatalogue(sample)
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`age_seconds`: "instance,job",
		`sum by (outcome) (rate(requests_total[5m])) > 0`:                           "outcome",
		`histogram_quantile(0.9, sum by (le, job) (rate(take_seconds_bucket[5m])))`: "job",
		`2 + age_seconds`:  "instance,job",
		`sum(age_seconds)`: "",
	} {
		if got, problems := c.inspect(expression); got.String() != want || len(problems) > 0 {
			t.Errorf("%s: the labels are %q, want %q; %q", expression, got, want, problems)
		}
	}
}

func TestTheCatalogueIsRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"requests_total", "requests_total number outcome", "a gauge b c"} {
		if _, err := readCatalogue(text); err == nil {
			t.Errorf("%q was understood", text)
		}
	}
}

// If a metric or a label is removed from the catalogue, the tests of the dashboard and the
// alerts fail.
func TestALostMetricIsNoticed(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"headgate_decisions_total", "headgate_redis_reachable", "headgate_snapshot_age_seconds", "headgate_limiter_seconds_bucket"} {
		c := theCatalogue(t)
		if _, there := c[lost]; !there {
			t.Errorf("%s is in no catalogue", lost)
		}
		delete(c, lost)
		if len(c.dashboardProblems(t)) == 0 {
			t.Errorf("the dashboard does not miss %s", lost)
		}
		if len(c.alertProblems(t)) == 0 {
			t.Errorf("the alerts do not miss %s", lost)
		}
	}
	c := theCatalogue(t)
	delete(c["headgate_count_flushes_total"].values["result"], "failed")
	if len(c.alertProblems(t)) == 0 {
		t.Error("a lost value is not noticed")
	}
	decisions := c["headgate_decisions_total"]
	c["headgate_decisions_total"] = series{decisions.labels.without("outcome"), decisions.values, true}
	if len(c.dashboardProblems(t)) == 0 || len(c.alertProblems(t)) == 0 {
		t.Error("a lost label is not noticed")
	}
}
