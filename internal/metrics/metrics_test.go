package metrics

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/headgate/headgate/enforcement"
)

var _ enforcement.Recorder = (*Recorder)(nil)

// scrape reads /metrics as Prometheus would.
func scrape(t testing.TB, r *Recorder) map[string]*dto.MetricFamily {
	t.Helper()
	res := httptest.NewRecorder()
	r.Handler().ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if res.Code != http.StatusOK {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("scrape: %d %s", res.Code, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// value of the one series of a family with these labels.
func value(t testing.TB, families map[string]*dto.MetricFamily, name string, labels ...string) float64 {
	t.Helper()
	f, ok := families[name]
	if !ok {
		t.Fatalf("no family %s", name)
	}
series:
	for _, m := range f.Metric {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		for i := 0; i < len(labels); i += 2 {
			if have[labels[i]] != labels[i+1] {
				continue series
			}
		}
		return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
	}
	t.Fatalf("no series %s%v", name, labels)
	return 0
}

func decision(allowed bool, reason enforcement.Reason, mode enforcement.Mode) *enforcement.Decision {
	return &enforcement.Decision{
		Subject: &enforcement.Subject{Tenant: "secret-tenant"},
		Check:   &enforcement.Check{Mode: mode, Path: "/secret/path", Attributes: []enforcement.Attribute{{Name: "user", Value: "secret-user"}}},
		Allowed: allowed, Reason: reason, Route: "/secret/*",
	}
}

func TestCountsAreExact(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{})
	degraded := decision(true, enforcement.ReasonOK, enforcement.Force)
	degraded.Degraded = true
	shadow := decision(true, enforcement.ReasonNoPolicy, enforcement.Enforce)
	rule := &enforcement.Rule{RuleSpec: enforcement.RuleSpec{Mode: enforcement.PolicyShadow}}
	shadow.Limits = []enforcement.LimitState{{Rule: rule, Allowed: true}, {Rule: rule}, {Rule: rule}}
	each := []*enforcement.Decision{
		decision(true, enforcement.ReasonOK, enforcement.Enforce),
		decision(false, enforcement.ReasonOverLimit, enforcement.Enforce),
		decision(false, enforcement.ReasonNoPolicy, enforcement.Enforce),
		decision(false, enforcement.ReasonLimiterUnavailable, enforcement.Enforce),
		decision(false, "a reason from elsewhere", enforcement.Enforce),
		decision(true, enforcement.ReasonOK, enforcement.Peek), // does not count
		degraded, shadow,
	}
	const goroutines, times = 8, 1_000
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range times {
				for _, d := range each {
					r.Record(d)
				}
			}
		})
	}
	all.Wait()
	families := scrape(t, r)
	for _, c := range []struct {
		outcome, reason, mode string
		want                  float64
	}{
		{"allowed", "ok", "enforce", 1},
		{"allowed", "ok", "force", 1},
		{"allowed", "no_policy", "enforce", 1},
		{"refused", "no_policy", "enforce", 1},
		{"refused", "over_limit", "enforce", 1},
		{"refused", "limiter_unavailable", "enforce", 1},
		{"refused", "other", "enforce", 1},
		{"refused", "cost_exceeds_quota", "enforce", 0},
	} {
		got := value(t, families, "headgate_decisions_total", "outcome", c.outcome, "reason", c.reason, "mode", c.mode)
		if want := c.want * goroutines * times; got != want {
			t.Errorf("%s %s %s = %v, want %v", c.outcome, c.reason, c.mode, got, want)
		}
	}
	for _, name := range []string{"headgate_degraded_total", "headgate_shadow_refusals_total"} {
		if got := value(t, families, name); got != goroutines*times {
			t.Errorf("%s = %v", name, got)
		}
	}
}

func TestEveryReasonHasItsCounter(t *testing.T) {
	t.Parallel()
	for i, name := range reasonNames {
		if got := reasonIndex(enforcement.Reason(name)); got != i {
			t.Errorf("%s counts as %s", name, reasonNames[got])
		}
	}
}

func TestNoUnboundedLabels(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{
		Snapshot: func() SnapshotState { return SnapshotState{} }, Redis: func() RedisState { return RedisState{} },
		Flush: func() FlushState { return FlushState{} }, Tenants: []string{"named"},
	})
	series := func() (n int) {
		for _, f := range scrape(t, r) {
			if strings.HasPrefix(f.GetName(), "headgate_") {
				n += len(f.Metric)
			}
		}
		return n
	}
	record := func(i int) {
		d := decision(i%2 == 0, enforcement.Reason(fmt.Sprint("reason ", i)), enforcement.Mode(i%7))
		d.Subject = &enforcement.Subject{Tenant: fmt.Sprint("tenant-", i)}
		r.Record(d)
	}
	for i := range 1_000 {
		record(i)
	}
	few := series()
	if few > 82 {
		t.Errorf("%d series", few)
	}
	for i := range 20_000 {
		record(1_000 + i)
	}
	if got := series(); got != few {
		t.Errorf("%d series after more tenants, want %d as before", got, few)
	}
	res := httptest.NewRecorder()
	r.Handler().ServeHTTP(res, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, word := range []string{"secret", "tenant-", "reason 1"} {
		if strings.Contains(res.Body.String(), word) {
			t.Errorf("%q is in the scrape", word)
		}
	}
	allowed := map[string]bool{"outcome": true, "reason": true, "mode": true, "verdict": true, "kind": true, "wire": true, "result": true, "tenant": true, "version": true, "revision": true, "goversion": true}
	form := regexp.MustCompile(`^headgate_[a-z_]+$`)
	for name, f := range scrape(t, r) {
		if !strings.HasPrefix(name, "headgate_") {
			continue
		}
		if !form.MatchString(name) || f.GetHelp() == "" || (f.GetType() == dto.MetricType_COUNTER) != strings.HasSuffix(name, "_total") {
			t.Errorf("%s breaks the conventions", name)
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if !allowed[l.GetName()] {
					t.Errorf("%s has a label %s", name, l.GetName())
				}
				if l.GetName() == "tenant" && l.GetValue() != "named" {
					t.Errorf("%s tells of tenant %s", name, l.GetValue())
				}
			}
		}
	}
}

// The tenants with most keys have series of their own, also if no setting names them. Their number is
// bounded, and tenants with few keys have none.
func TestTenantsWithMostKeysAreNamed(t *testing.T) {
	t.Parallel()
	keys := []TenantKeys{{Tenant: "named-1", Live: 1, Max: 100}, {Tenant: "small", Live: 9, Max: 100}, {Tenant: "large", Live: 10, Max: 100}}
	config := Config{Tenants: []string{"named-1", "named-2"}, Redis: func() RedisState { return RedisState{Keys: keys} }}
	families := scrape(t, NewRecorder(config))
	for slug, want := range map[string]float64{"named-1": 1, "named-2": 0, "large": 10} {
		if got := value(t, families, "headgate_redis_tenant_keys", "tenant", slug); got != want {
			t.Errorf("%s: %v, want %v", slug, got, want)
		}
	}
	if n := len(families["headgate_redis_tenant_keys"].GetMetric()); n != 3 {
		t.Errorf("%d series, want 3", n)
	}
	for i := range 1000 {
		keys = append(keys, TenantKeys{Tenant: fmt.Sprintf("t%d", i), Live: 50, Max: 100})
	}
	families = scrape(t, NewRecorder(config))
	if n := len(families["headgate_redis_tenant_keys"].GetMetric()); n != MostTenantKeys+2 {
		t.Errorf("%d series of 1,003 tenants, want %d", n, MostTenantKeys+2)
	}
	if value(t, families, "headgate_redis_tenant_keys", "tenant", "large") != 10 {
		t.Error("the first tenants of the list have no series")
	}
}

func TestGauges(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{
		Version: "1.2.3", Tenants: []string{"b"},
		Snapshot: func() SnapshotState {
			return SnapshotState{Loaded: true, Revision: 42, Age: 1500 * time.Millisecond, Problems: 3, Held: true, Swaps: 7, Tenants: 5}
		},
		Redis: func() RedisState {
			return RedisState{
				BreakerOpen: true, Mismatches: 4, Calls: 90, Recalled: 6, Losses: 2, UsedMemory: 80, MaxMemory: 100,
				Keys: []TenantKeys{{"a", 900, 1000, true}, {"b", 40, 100, false}}, Refusing: Refusing{Since: time.Unix(1700000000, 5e8), Code: "READONLY"},
			}
		},
		Database: func() Refusing { return Refusing{} },
	})
	families := scrape(t, r)
	for name, want := range map[string]float64{
		"headgate_snapshot_loaded": 1, "headgate_snapshot_revision": 42, "headgate_snapshot_age_seconds": 1.5,
		"headgate_snapshot_problems": 3, "headgate_snapshot_held": 1, "headgate_snapshot_listening": 0,
		"headgate_snapshot_swaps_total": 7, "headgate_redis_reachable": 0, "headgate_redis_breaker_open": 1, "headgate_redis_mismatches_total": 4,
		"headgate_redis_calls_total": 90, "headgate_redis_recalled_denials_total": 6, "headgate_redis_writable": 0, "headgate_redis_data_lost_total": 2,
		"headgate_database_writable": 1, "headgate_redis_memory_used_bytes": 80, "headgate_redis_memory_max_bytes": 100,
		"headgate_redis_full_tenants": 1, "headgate_redis_fullest_tenant_ratio": 0.9,
	} {
		if got := value(t, families, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if value(t, families, "headgate_snapshot_objects", "kind", "tenant") != 5 || value(t, families, "headgate_build_info", "version", "1.2.3") != 1 {
		t.Error("objects or build info")
	}
	for _, name := range []string{"go_goroutines", "process_start_time_seconds"} {
		if _, ok := families[name]; !ok {
			t.Errorf("no %s", name)
		}
	}
	if got := value(t, families, "headgate_redis_tenant_keys", "tenant", "b"); got != 40 {
		t.Errorf("%v keys of the named tenant", got)
	}
	if got := value(t, families, "headgate_redis_refusing_since_timestamp_seconds", "code", "READONLY"); got != 1700000000.5 {
		t.Errorf("refusing since %v", got)
	}
	if _, ok := families["headgate_database_refusing_since_timestamp_seconds"]; ok {
		t.Error("a database that writes is said to refuse")
	}
	bare := scrape(t, NewRecorder(Config{}))
	if _, ok := bare["headgate_redis_reachable"]; ok {
		t.Error("a node without Redis tells of it")
	}
}

// verdicts is a Limiter that ends each request as it says.
type verdicts []enforcement.Verdict

func (v verdicts) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i].Verdict = v[i]
	}
}

func TestInstrumentedLimiter(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{})
	l := r.InstrumentLimiter(verdicts{enforcement.Granted, enforcement.Granted, enforcement.Refused, enforcement.Unknown, enforcement.Full, 99})
	for range 3 {
		l.Take(t.Context(), make([]enforcement.Request, 6), make([]enforcement.Outcome, 6))
	}
	families := scrape(t, r)
	for verdict, want := range map[string]float64{"granted": 6, "refused": 3, "unknown": 3, "failed": 0, "full": 3, "none": 3} {
		if got := value(t, families, "headgate_limiter_requests_total", "verdict", verdict); got != want {
			t.Errorf("%s = %v, want %v", verdict, got, want)
		}
	}
	if h := families["headgate_limiter_seconds"].Metric[0].Histogram; h.GetSampleCount() != 3 || len(h.Bucket) != len(latencyBounds)+1 {
		t.Errorf("histogram = %v", h)
	}
}

func TestSeriesOfUnmatchedChecks(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{Tenants: []string{"acme"}})
	for _, c := range []struct {
		allowed bool
		reason  enforcement.Reason
		plan    *enforcement.Plan
	}{
		{true, enforcement.ReasonNoPolicy, nil},
		{true, enforcement.ReasonNoPolicy, new(enforcement.Plan)},
		{false, enforcement.ReasonNoPolicy, new(enforcement.Plan)},
		{true, enforcement.ReasonOK, new(enforcement.Plan)},
	} {
		d := decision(c.allowed, c.reason, enforcement.Enforce)
		d.Subject.Tenant, d.Subject.Plan = "acme", c.plan
		r.Record(d)
	}
	families := scrape(t, r)
	for cause, want := range map[string]float64{"no_plan": 1, "no_match": 2} {
		if got := value(t, families, "headgate_unmatched_total", "kind", cause); got != want {
			t.Errorf("%s = %v, want %v", cause, got, want)
		}
	}
	if got := value(t, families, "headgate_tenant_unmatched_total", "tenant", "acme"); got != 3 {
		t.Errorf("acme: %v", got)
	}
}

func TestSeriesOfRefusalsTenantsAndFlushes(t *testing.T) {
	t.Parallel()
	many := []string{"acme"}
	for i := range 40 {
		many = append(many, fmt.Sprint("t", i))
	}
	r := NewRecorder(Config{Tenants: many, Flush: func() FlushState {
		return FlushState{WaitingRows: 12, Waiting: 1500 * time.Millisecond, Flushed: 7, Failed: 2, Folded: 3, NotKept: 4, AllowedNotKept: 5}
	}})
	record := func(reason enforcement.Reason, allowed bool, retry int64) {
		d := decision(allowed, reason, enforcement.Enforce)
		d.Subject.Tenant, d.RetryAfter = "acme", retry
		r.Record(d)
	}
	record(enforcement.ReasonAllowedByList, true, 0)
	record(enforcement.ReasonDeniedByList, false, enforcement.Never)
	record(enforcement.ReasonBlocked, false, 3_600_000)
	record(enforcement.ReasonOverLimit, false, 1)
	record(enforcement.ReasonOverLimit, false, 5)
	record(enforcement.ReasonCostExceedsQuota, false, enforcement.Never)
	families := scrape(t, r)
	for reason, outcome := range map[string]string{"allowed_by_list": "allowed", "denied_by_list": "refused", "blocked": "refused"} {
		if got := value(t, families, "headgate_decisions_total", "outcome", outcome, "reason", reason); got != 1 {
			t.Errorf("%s = %v", reason, got)
		}
	}
	for outcome, want := range map[string]float64{"allowed": 1, "refused": 5} {
		if got := value(t, families, "headgate_tenant_decisions_total", "tenant", "acme", "outcome", outcome); got != want {
			t.Errorf("%s = %v", outcome, got)
		}
	}
	if n := len(families["headgate_tenant_decisions_total"].Metric); n != 2*maxTenantSeries {
		t.Errorf("%d series of tenants", n)
	}
	h := families["headgate_retry_after_seconds"].Metric[0].Histogram
	if h.GetSampleCount() != 3 || h.GetSampleSum() != 3600.006 {
		t.Errorf("retry times: %v", h)
	}
	for _, b := range h.Bucket {
		want := map[float64]uint64{0.001: 1, 0.004: 1, 0.016: 2, 1048.576: 2, 4194.304: 3}
		if n, asked := want[b.GetUpperBound()]; asked && b.GetCumulativeCount() != n {
			t.Errorf("up to %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), n)
		}
	}
	for name, want := range map[string]float64{
		"headgate_counts_waiting_rows": 12, "headgate_counts_waiting_seconds": 1.5,
		"headgate_counts_folded_total": 3, "headgate_refusals_not_kept_total": 4, "headgate_allowed_not_kept_total": 5,
	} {
		if got := value(t, families, name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if value(t, families, "headgate_count_flushes_total", "result", "ok") != 7 || value(t, families, "headgate_count_flushes_total", "result", "failed") != 2 {
		t.Error("flushes")
	}
}

// A scrape beside drains and decisions never goes back.
func TestAScrapeNeverGoesBack(t *testing.T) {
	t.Parallel()
	r := NewRecorder(Config{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			d := decision(true, enforcement.ReasonOK, enforcement.Enforce)
			for {
				select {
				case <-stop:
					return
				default:
					r.Record(d)
				}
			}
		})
	}
	last := 0.0
	for range 20 {
		got := value(t, scrape(t, r), "headgate_decisions_total", "outcome", "allowed", "reason", "ok", "mode", "enforce")
		if got < last {
			t.Errorf("%v after %v", got, last)
		}
		last = got
		r.drain()
	}
	close(stop)
	all.Wait()
}
