package metrics

import (
	"maps"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate/enforcement"
)

// NewRecorder makes a Recorder with a registry of its own.
func NewRecorder(cfg Config) *Recorder {
	if cfg.Version == "" {
		cfg.Version = "unknown"
	}
	if cfg.Revision == "" {
		cfg.Revision = "unknown"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	r := &Recorder{cfg: cfg, registry: prometheus.NewRegistry(), tenants: tenantSeries(cfg.Tenants)}
	r.shards = make([]*shard, 2*runtime.GOMAXPROCS(0))
	for i := range r.shards {
		size := maxContents / len(r.shards)
		r.shards[i] = &shard{index: i, content: newContent(size), spare: newContent(size)}
	}
	r.pool.New = func() any { return r.shards[int(r.next.Add(1))%len(r.shards)] }
	r.registry.MustRegister(
		&collector{r},
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return r
}

// Bounds of histograms at /metrics, each a bound of ours as well.
var (
	latencyBounds = powersOf2(24, 1) // in microseconds: 1 µs, each twice the one before, to 8.4 s
	retryBounds   = powersOf2(16, 2) // in milliseconds: 1 ms, each four times the one before, to 12.4 days
)

// powersOf2 gives n of them from 1 on, so many octaves apart.
func powersOf2(n, apart int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = 1 << (i * apart)
	}
	return list
}

// Handler serves what was counted, in the formats of Prometheus.
func (r *Recorder) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_"+name, help, labels, nil)
}

var (
	decisionsDesc = desc("decisions_total", "Decisions, by what came of them, why, and the mode of the check. Peeks do not count.", "outcome", "reason", "mode")
	degradedDesc  = desc("degraded_total", "Decisions that failure modes answered because the shared limiter was away.")
	shadowDesc    = desc("shadow_refusals_total", "Allowed decisions that a shadow policy would have refused.")

	tenantDesc     = desc("tenant_decisions_total", "Decisions of the tenants that a setting names, by what came of them.", "tenant", "outcome")
	retryAfterDesc = desc("retry_after_seconds", "How long refused requests were told to wait, of refusals by limits and blocks where waiting helps.")
	notKeptDesc    = desc("refusals_not_kept_total", "Refusals of which no explanation was kept, because there were too many.")

	countsRowsDesc    = desc("counts_waiting_rows", "Rows of counts that are not in the database yet.")
	countsSecondsDesc = desc("counts_waiting_seconds", "Age of the oldest count that is not in the database yet.")
	countFlushesDesc  = desc("count_flushes_total", "Transactions that add counts to the database, by how they ended.", "result")
	countsFoldedDesc  = desc("counts_folded_total", "Counts that found no room as rows of their own and are only in the sums above them.")

	limiterSecondsDesc  = desc("limiter_seconds", "How long calls of the limiter take; one call may decide many requests.")
	limiterRequestsDesc = desc("limiter_requests_total", "Requests to the limiter, by how they ended.", "verdict")

	snapshotLoadedDesc    = desc("snapshot_loaded", "1 when a snapshot of tenants and plans is loaded.")
	snapshotRevisionDesc  = desc("snapshot_revision", "Control-plane revision of the snapshot in force.")
	snapshotAgeDesc       = desc("snapshot_age_seconds", "Seconds since the database last said that the snapshot is the newest.")
	snapshotProblemsDesc  = desc("snapshot_problems", "Tenants, plans and keys that cannot be used as they are stored.")
	snapshotHeldDesc      = desc("snapshot_held", "1 when a newer world waits for an operator.")
	snapshotListeningDesc = desc("snapshot_listening", "1 when notifications of changes are listened for; otherwise only polling tells.")
	snapshotSwapsDesc     = desc("snapshot_swaps_total", "Snapshots that came into force.")
	snapshotObjectsDesc   = desc("snapshot_objects", "Objects in the snapshot in force.", "kind")

	redisReachableDesc = desc("redis_reachable", "1 when the shared limiter answered last.")
	redisBreakerDesc   = desc("redis_breaker_open", "1 while calls of the shared limiter are not tried.")
	redisMismatchDesc  = desc("redis_mismatches_total", "Requests that the script decided otherwise than the reference. It stays 0.")
	redisCallsDesc     = desc("redis_calls_total", "Script calls that the shared limiter answered. Concurrent checks share a call.")
	redisRecalledDesc  = desc("redis_recalled_denials_total", "Requests that were denied without a call, because their counters denied less than a second before.")

	redisWritableDesc = desc("redis_writable", "1 unless the shared limiter is reachable and refuses to write.")
	redisRefusingDesc = desc("redis_refusing_since_timestamp_seconds", "Since when the shared limiter refuses to write, by its answer; no series while it writes.", "code")
	redisLostDesc     = desc("redis_data_lost_total", "Times at which the shared limiter was found without data that it had.")

	databaseWritableDesc = desc("database_writable", "1 unless the database is reachable and refuses to write.")
	databaseRefusingDesc = desc("database_refusing_since_timestamp_seconds", "Since when the database refuses to write, by its answer; no series while it writes.", "code")

	leasesDrawnDesc    = desc("leases_drawn_units_total", "Units of leased policies that the node drew ahead.")
	leasesSpentDesc    = desc("leases_spent_units_total", "Drawn units that checks used.")
	leasesReturnedDesc = desc("leases_returned_units_total", "Drawn units that the node gave back.")
	leasesChecksDesc   = desc("leases_checks_total", "Requests that the node answered from drawn units, without a call of the shared limiter.")
	leasesHeldDesc     = desc("leases_held_units", "Drawn units that the node holds now.")
	leasesCountersDesc = desc("leases_held_counters", "Counters of which the node holds drawn units now.")

	overloadedDesc = desc("overloaded_total", "Checks and batches that were answered 503 because the queue in front of the limiter was full. They are no decisions.")
	waitingDesc    = desc("admission_waiting", "Weight of the checks that wait in the queue in front of the limiter: 1 for a check, an eighth of its checks for a batch.")
	inServiceDesc  = desc("admission_in_service", "Weight of the checks that the limiter decides or whose answer is written.")

	connectionsDesc      = desc("connections", "Connections that the listener has now.")
	connectionsLimitDesc = desc("connections_limit", "Connections that the listener may have.")
	connectionsEndedDesc = desc("connections_ended_total", "Connections that the listener ended at its limit: idle ones that were closed, and new ones that were refused.", "cause")

	logDroppedDesc = desc("log_lines_dropped_total", "Log lines that were dropped because the log target was blocked.")
	logFoldedDesc  = desc("log_lines_folded_total", "Warnings and errors that repeat another of the same minute and were folded into one line.")

	buildDesc = desc("build_info", "Always 1; the labels tell what is running.", "version", "revision", "goversion")
)

// A collector reads the counters of a Recorder when it is scraped.
type collector struct{ r *Recorder }

// Describe sends the descriptions of all series.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		decisionsDesc, degradedDesc, shadowDesc, tenantDesc, retryAfterDesc, notKeptDesc,
		countsRowsDesc, countsSecondsDesc, countFlushesDesc, countsFoldedDesc, limiterSecondsDesc, limiterRequestsDesc, snapshotLoadedDesc,
		snapshotRevisionDesc, snapshotAgeDesc, snapshotProblemsDesc, snapshotHeldDesc, snapshotListeningDesc,
		snapshotSwapsDesc, snapshotObjectsDesc, redisReachableDesc, redisBreakerDesc, redisMismatchDesc,
		redisCallsDesc, redisRecalledDesc, redisWritableDesc, redisRefusingDesc, redisLostDesc, databaseWritableDesc, databaseRefusingDesc,
		leasesDrawnDesc, leasesSpentDesc, leasesReturnedDesc, leasesChecksDesc, leasesHeldDesc, leasesCountersDesc,
		overloadedDesc, waitingDesc, inServiceDesc, connectionsDesc, connectionsLimitDesc, connectionsEndedDesc, logDroppedDesc, logFoldedDesc, buildDesc,
	} {
		out <- d
	}
}

// Collect sends the series with their values now.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	s := sink(out)
	c.r.collectDecisions(s)
	c.r.collectTenants(s)
	c.r.collectCounts(s)
	c.r.collectLimiter(s)
	if c.r.cfg.Snapshot != nil {
		s.snapshot(c.r.cfg.Snapshot())
	}
	if c.r.cfg.Redis != nil {
		state := c.r.cfg.Redis()
		s.gauge(redisReachableDesc, truth(state.Reachable))
		s.gauge(redisBreakerDesc, truth(state.BreakerOpen))
		s.counter(redisMismatchDesc, uint64(max(state.Mismatches, 0)))
		s.counter(redisCallsDesc, uint64(max(state.Calls, 0)))
		s.counter(redisRecalledDesc, uint64(max(state.Recalled, 0)))
		s.counter(redisLostDesc, uint64(max(state.Losses, 0)))
		s.refusing(redisWritableDesc, redisRefusingDesc, state.Refusing)
	}
	if c.r.cfg.Database != nil {
		s.refusing(databaseWritableDesc, databaseRefusingDesc, c.r.cfg.Database())
	}
	if c.r.cfg.Leases != nil {
		state := c.r.cfg.Leases()
		s.counter(leasesDrawnDesc, uint64(max(state.Drawn, 0)))
		s.counter(leasesSpentDesc, uint64(max(state.Spent, 0)))
		s.counter(leasesReturnedDesc, uint64(max(state.Returned, 0)))
		s.counter(leasesChecksDesc, uint64(max(state.Answered, 0)))
		s.gauge(leasesHeldDesc, float64(state.Held))
		s.gauge(leasesCountersDesc, float64(state.Counters))
	}
	if c.r.cfg.Admission != nil {
		state := c.r.cfg.Admission()
		s.counter(overloadedDesc, uint64(max(state.Overloaded, 0)))
		s.gauge(waitingDesc, float64(state.Waiting))
		s.gauge(inServiceDesc, float64(state.InService))
	}
	if c.r.cfg.Connections != nil {
		state := c.r.cfg.Connections()
		s.gauge(connectionsDesc, float64(state.Open))
		s.gauge(connectionsLimitDesc, float64(state.Limit))
		s.counter(connectionsEndedDesc, uint64(max(state.Evicted, 0)), "idle")
		s.counter(connectionsEndedDesc, uint64(max(state.Refused, 0)), "refused")
	}
	if c.r.cfg.Log != nil {
		state := c.r.cfg.Log()
		s.counter(logDroppedDesc, uint64(max(state.Dropped, 0)))
		s.counter(logFoldedDesc, uint64(max(state.Folded, 0)))
	}
	s.gauge(buildDesc, 1, c.r.cfg.Version, c.r.cfg.Revision, runtime.Version())
}

func (r *Recorder) collectDecisions(s sink) {
	all := new(totals)
	for _, shard := range r.shards {
		all.add(&shard.tallies)
	}
	for o := range nOutcomes {
		for reason := range nReasons {
			for m := range nModes {
				// A series that was never counted is shown where it is to be
				// expected, so that the first rate over it is right.
				n := all.decisions[o][reason][m]
				if n > 0 || m == modeEnforce && usual(o, enforcement.Reason(reasonNames[reason])) {
					s.counter(decisionsDesc, n, outcomeNames[o], reasonNames[reason], modeNames[m])
				}
			}
		}
	}
	s.counter(degradedDesc, all.degraded)
	s.counter(shadowDesc, all.shadow)
	upTo, count := r.retry.upTo(retryBounds)
	s.histogram(retryAfterDesc, count, float64(r.retry.sum.Load())/1e3, retryBounds, upTo, 1e3)
}

// collectTenants shows the tenants that a setting names.
func (r *Recorder) collectTenants(s sink) {
	for _, slug := range slices.Sorted(maps.Keys(r.tenants)) {
		for o := range nOutcomes {
			s.counter(tenantDesc, r.tenants[slug][o].Load(), slug, outcomeNames[o])
		}
	}
}

// collectCounts shows what became of counts after they were counted.
func (r *Recorder) collectCounts(s sink) {
	var state FlushState
	if r.cfg.Flush != nil {
		state = r.cfg.Flush()
		s.gauge(countsRowsDesc, float64(state.WaitingRows))
		s.gauge(countsSecondsDesc, state.Waiting.Seconds())
		s.counter(countFlushesDesc, uint64(max(state.Flushed, 0)), "ok")
		s.counter(countFlushesDesc, uint64(max(state.Failed, 0)), "failed")
		s.counter(countsFoldedDesc, r.folded.Load()+uint64(max(state.Folded, 0)))
	}
	s.counter(notKeptDesc, r.refusals.notKept.Load()+uint64(max(state.NotKept, 0)))
}

// usual reports whether an outcome goes with a reason.
func usual(outcome int, reason enforcement.Reason) bool {
	switch reason {
	case enforcement.ReasonOK, enforcement.ReasonAllowedByList:
		return outcome == allowed
	case enforcement.ReasonNoPolicy:
		return true
	case "other":
		return false
	}
	return outcome == refused
}

func (r *Recorder) collectLimiter(s sink) {
	upTo, count := r.limiter.seconds.upTo(latencyBounds)
	s.histogram(limiterSecondsDesc, count, time.Duration(r.limiter.seconds.sum.Load()).Seconds(), latencyBounds, upTo, 1e6)
	for v := range nVerdicts {
		name := enforcement.Verdict(v).String()
		n := r.limiter.verdicts[v].Load()
		if v == 0 {
			if n == 0 {
				continue
			}
			name = "none"
		}
		s.counter(limiterRequestsDesc, n, name)
	}
}

func (s sink) snapshot(state SnapshotState) {
	s.gauge(snapshotLoadedDesc, truth(state.Loaded))
	s.gauge(snapshotRevisionDesc, float64(state.Revision))
	s.gauge(snapshotAgeDesc, state.Age.Seconds())
	s.gauge(snapshotProblemsDesc, float64(state.Problems))
	s.gauge(snapshotHeldDesc, truth(state.Held))
	s.gauge(snapshotListeningDesc, truth(state.Listening))
	s.counter(snapshotSwapsDesc, uint64(max(state.Swaps, 0)))
	s.gauge(snapshotObjectsDesc, float64(state.Plans), "plan")
	s.gauge(snapshotObjectsDesc, float64(state.Tenants), "tenant")
	s.gauge(snapshotObjectsDesc, float64(state.Keys), "key")
}

// refusing shows whether a store writes, and if not, since when.
func (s sink) refusing(writable, since *prometheus.Desc, r Refusing) {
	s.gauge(writable, truth(r.Since.IsZero()))
	if !r.Since.IsZero() {
		s.gauge(since, float64(r.Since.UnixMilli())/1e3, r.Code)
	}
}

// A sink takes constant metrics.
type sink chan<- prometheus.Metric

func (s sink) counter(d *prometheus.Desc, n uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

// histogram shows one whose bounds are in parts of a second, so many of them.
func (s sink) histogram(d *prometheus.Desc, count uint64, sum float64, bounds []int64, upTo []uint64, parts float64) {
	buckets := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		buckets[float64(bound)/parts] = upTo[i]
	}
	s <- prometheus.MustNewConstHistogram(d, count, sum, buckets)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
