package grafanatest

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// healthy is what two nodes show for two hours in which nothing is wrong: one
// sample a minute.
const healthy = `
load 1m
	up{job="headgate",instance="a"} 1x120
	up{job="headgate",instance="b"} 1x120
	headgate_build_info{job="headgate",instance="a",version="1",revision="x",goversion="go1"} 1x120
	headgate_build_info{job="headgate",instance="b",version="1",revision="x",goversion="go1"} 1x120
	headgate_redis_reachable{job="headgate",instance="a"} 1x120
	headgate_redis_breaker_open{job="headgate",instance="a"} 0x120
	headgate_redis_data_lost_total{job="headgate",instance="a"} 1x120
	headgate_redis_memory_used_bytes{job="headgate",instance="a"} 1000x120
	headgate_redis_memory_max_bytes{job="headgate",instance="a"} 0x120
	headgate_redis_memory_used_bytes{job="headgate",instance="b"} 79x120
	headgate_redis_memory_max_bytes{job="headgate",instance="b"} 100x120
	headgate_redis_fullest_tenant_ratio{job="headgate",instance="a"} 0.79x120
	headgate_redis_mismatches_total{job="headgate",instance="a"} 0x120
	headgate_degraded_total{job="headgate",instance="a"} 5x120
	headgate_overloaded_total{job="headgate",instance="a"} 9x120
	headgate_decisions_total{job="headgate",instance="a",outcome="allowed",reason="ok",mode="enforce"} 0+600x120
	headgate_decisions_total{job="headgate",instance="a",outcome="refused",reason="over_limit",mode="enforce"} 0+100x120
	headgate_decisions_total{job="headgate",instance="a",outcome="refused",reason="limiter_unavailable",mode="enforce"} 7x120
	headgate_limiter_requests_total{job="headgate",instance="a",verdict="granted"} 0+600x120
	headgate_limiter_requests_total{job="headgate",instance="a",verdict="unknown"} 3x120
	headgate_limiter_seconds_bucket{job="headgate",instance="a",le="0.001"} 0+590x120
	headgate_limiter_seconds_bucket{job="headgate",instance="a",le="0.016"} 0+599x120
	headgate_limiter_seconds_bucket{job="headgate",instance="a",le="0.064"} 0+600x120
	headgate_limiter_seconds_bucket{job="headgate",instance="a",le="+Inf"} 0+600x120
	headgate_snapshot_loaded{job="headgate",instance="a"} 1x120
	headgate_snapshot_revision{job="headgate",instance="a"} 40x60 41x59
	headgate_snapshot_revision{job="headgate",instance="b"} 40x62 41x57
	headgate_snapshot_age_seconds{job="headgate",instance="a"} 2x120
	headgate_snapshot_held{job="headgate",instance="a"} 0x120
	headgate_snapshot_problems{job="headgate",instance="a"} 0x120
	headgate_snapshot_listening{job="headgate",instance="a"} 1x120
	headgate_counts_waiting_seconds{job="headgate",instance="a"} 1x120
	headgate_counts_waiting_rows{job="headgate",instance="a"} 30x120
	headgate_count_flushes_total{job="headgate",instance="a",result="ok"} 0+60x120
	headgate_count_flushes_total{job="headgate",instance="a",result="failed"} 2x120
`

// faults are worlds in which one thing goes wrong in the tenth minute, and the
// minutes in which the alert comes at the earliest and at the latest.
var faults = map[string]struct {
	load            string
	earliest, until int
	says            string // part of the summary
}{
	"HeadgateAbsent":                {`up{job="other",instance="a"} 1x60`, 5, 6, "No node"},
	"HeadgateNodeDown":              {`up{job="headgate",instance="a"} 1x9 0x50`, 12, 13, "node a does not"},
	"HeadgateVersionsDiffer":        {"headgate_build_info{job=\"headgate\",instance=\"a\",version=\"1\",revision=\"x\"} 1x90\n\theadgate_build_info{job=\"headgate\",instance=\"b\",version=\"2\",revision=\"y\"} 1x90", 60, 61, "run 2 versions"},
	"HeadgateRedisAway":             {`headgate_redis_reachable{job="headgate",instance="a"} 1x9 0x50`, 11, 12, "away for a"},
	"HeadgateRedisRefusesWrites":    {`headgate_redis_refusing_since_timestamp_seconds{job="headgate",instance="a",code="OOM"} _x10 600x50`, 11, 12, "answers OOM to aRedis has refused writes since 1970-01-01 00:10:00"},
	"HeadgateRedisLostData":         {`headgate_redis_data_lost_total{job="headgate",instance="a"} 1x9 2x50`, 11, 12, "counters of a"},
	"HeadgateDatabaseRefusesWrites": {`headgate_database_refusing_since_timestamp_seconds{job="headgate",instance="a",code="full"} _x10 600x50`, 11, 12, "of a (full)"},
	"HeadgateRedisMemory":           {"headgate_redis_memory_used_bytes{job=\"headgate\",instance=\"a\"} 79x9 81x50\n\theadgate_redis_memory_max_bytes{job=\"headgate\",instance=\"a\"} 100x60", 11, 12, "Redis uses 81B"},
	"HeadgateTenantKeys":            {`headgate_redis_fullest_tenant_ratio{job="headgate",instance="a"} 0.79x9 0.9x50`, 11, 12, "A tenant has 90%"},
	"HeadgateScriptDisagrees":       {`headgate_redis_mismatches_total{job="headgate",instance="a"} 0x9 1x50`, 11, 12, "than a expects"},
	"HeadgateDegraded":              {`headgate_degraded_total{job="headgate",instance="a"} 5x9 65+60x50`, 15, 16, "1.0 degraded"},
	"HeadgateChecksUnavailable":     {`headgate_decisions_total{job="headgate",instance="a",outcome="refused",reason="limiter_unavailable",mode="enforce"} 7x9 127+120x50`, 12, 13, "with 503"},
	"HeadgateOverloaded":            {`headgate_overloaded_total{job="headgate",instance="a"} 9x9 69+60x50`, 15, 16, "a answers 1.0 requests"},
	"HeadgateRepliesLost":           {`headgate_limiter_requests_total{job="headgate",instance="a",verdict="unknown"} 3x9 4+1x50`, 25, 26, "are lost"},
	"HeadgateLimiterSlow": {"headgate_limiter_seconds_bucket{job=\"headgate\",instance=\"a\",le=\"0.016\"} 0+500x60\n\theadgate_limiter_seconds_bucket{job=\"headgate\",instance=\"a\",le=\"0.064\"} 0+600x60\n" +
		"\theadgate_limiter_seconds_bucket{job=\"headgate\",instance=\"a\",le=\"+Inf\"} 0+600x60", 11, 12, "slow on a"},
	"HeadgateSnapshotNotLoaded": {`headgate_snapshot_loaded{job="headgate",instance="a"} 0x60`, 2, 3, "a has no tenants"},
	"HeadgateSnapshotStale":     {`headgate_snapshot_age_seconds{job="headgate",instance="a"} 2x9 60+60x50`, 15, 16, "of a is"},
	"HeadgateSnapshotHeld":      {`headgate_snapshot_held{job="headgate",instance="a"} 0x9 1x50`, 11, 12, "a holds back"},
	"HeadgateSnapshotProblems":  {`headgate_snapshot_problems{job="headgate",instance="a"} 0x9 3x50`, 15, 16, "3 tenants"},
	"HeadgateNotListening":      {`headgate_snapshot_listening{job="headgate",instance="a"} 1x9 0x50`, 25, 26, "a does not hear"},
	"HeadgateNodesDisagree":     {"headgate_snapshot_revision{job=\"headgate\",instance=\"a\"} 40x9 41x50\n\theadgate_snapshot_revision{job=\"headgate\",instance=\"b\"} 40x60", 15, 16, "different revisions"},
	"HeadgateCountsWaiting":     {`headgate_counts_waiting_seconds{job="headgate",instance="a"} 1x9 60+60x50`, 20, 21, "of a have waited"},
	"HeadgateFlushFailing":      {`headgate_count_flushes_total{job="headgate",instance="a",result="failed"} 2x9 8+6x50`, 20, 21, "of a cannot"},
	// After twenty hours of one refusal in eleven, four in ten.
	"HeadgateManyRefusals": {"headgate_decisions_total{job=\"headgate\",instance=\"a\",outcome=\"allowed\",reason=\"ok\",mode=\"enforce\"} 0+60x1200 72060+60x60\n" +
		"\theadgate_decisions_total{job=\"headgate\",instance=\"a\",outcome=\"refused\",reason=\"over_limit\",mode=\"enforce\"} 0+1x1200 1240+40x60", 1216, 1240, "refused with 429"},
}

// play evaluates an alert once a minute, and returns the first minute in which
// it fires with its summary; -1 when it never does.
func play(t *testing.T, rule rulefmt.Rule, load string, minutes int) (int, string) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, load)
	engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: 10 * time.Minute, LookbackDelta: 5 * time.Minute, Parser: parser.NewParser(parser.Options{}),
	})
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(rule.Expr)
	if err != nil {
		t.Fatal(err)
	}
	alert := rules.NewAlertingRule(rule.Alert, expression, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, promslog.NewNopLogger())
	query := rules.EngineQueryFunc(engine, storage)
	for minute := range minutes {
		if _, err := alert.Eval(t.Context(), 0, time.Unix(int64(60*minute), 0), query, nil, 0); err != nil {
			t.Fatal(err)
		}
		for _, active := range alert.ActiveAlerts() {
			if active.State == rules.StateFiring {
				return minute, active.Annotations.Get("summary") + active.Annotations.Get("description")
			}
		}
	}
	return -1, ""
}

func TestEveryAlertComesWhenItShould(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, rule := range theAlerts(t) {
		known[rule.Alert] = true
		t.Run(rule.Alert, func(t *testing.T) {
			t.Parallel()
			fault, there := faults[rule.Alert]
			if !there {
				t.Fatal("no fault is played that should bring it")
			}
			minute, text := play(t, rule, "load 1m\n\t"+fault.load+"\n", fault.until+5)
			if minute < fault.earliest || minute > fault.until {
				t.Errorf("it came in minute %d, want %d to %d", minute, fault.earliest, fault.until)
			}
			if !strings.Contains(text, fault.says) || strings.Contains(text, "<") || strings.Contains(text, "%!") {
				t.Errorf("it says %q, want %q", text, fault.says)
			}
		})
	}
	for name := range faults {
		if !known[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

func TestNoAlertComesInAHealthyWorld(t *testing.T) {
	t.Parallel()
	for _, rule := range theAlerts(t) {
		t.Run(rule.Alert, func(t *testing.T) {
			t.Parallel()
			if minute, text := play(t, rule, healthy, 120); minute >= 0 {
				t.Errorf("it came in minute %d: %s", minute, text)
			}
		})
	}
}
