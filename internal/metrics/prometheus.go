package metrics

import (
	"cmp"
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

// NewRecorder returns a Recorder, with a Prometheus registry that contains only its metrics.
func NewRecorder(cfg Config) *Recorder {
	cfg.Version = cmp.Or(cfg.Version, "unknown")
	cfg.Revision = cmp.Or(cfg.Revision, "unknown")
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

// Upper bounds of the buckets of the histograms at /metrics. Each bound is also an element of
// logBounds, so that upTo can count exactly the values up to this bound.
var (
	latencyBounds = powersOf2(24, 1) // in microseconds, from 1 µs to 8.4 s; each bound is twice the previous one
	retryBounds   = powersOf2(16, 2) // in milliseconds, from 1 ms to 12.4 days; each bound is four times the previous one
)

// powersOf2 returns n powers of 2. The first power is 1, and each later one is 2^apart times the
// one before it.
func powersOf2(n, apart int) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = 1 << (i * apart)
	}
	return list
}

// Handler returns the handler of /metrics, which writes the counts in the formats of Prometheus.
func (r *Recorder) Handler() http.Handler {
	return promhttp.HandlerFor(r.registry, promhttp.HandlerOpts{})
}

// A collector sends the metrics of a Recorder to Prometheus at each scrape.
type collector struct{ r *Recorder }

// Describe sends nothing, because Collect creates the descriptions of the metrics.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all series with their current values.
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
		s.gauge("redis_reachable", "1 when the shared limiter answered last.", truth(state.Reachable))
		s.gauge("redis_breaker_open", "1 while the node does not call the shared limiter.", truth(state.BreakerOpen))
		s.counter("redis_mismatches_total", "Requests that the script and the reference decided differently. It should stay 0.",
			state.Mismatches)
		s.counter("redis_calls_total", "Script calls that the shared limiter answered. Concurrent checks share a call.", state.Calls)
		s.counter("redis_recalled_denials_total",
			"Requests that were denied without a call, because their counters denied less than a second before.",
			state.Recalled)
		s.counter("redis_data_lost_total", "Times at which the shared limiter was found without data that it had.", state.Losses)
		s.refusing("redis", "shared limiter", state.Refusing)
		s.gauge("redis_memory_used_bytes", "Memory that the shared limiter uses; 0 while unknown.", float64(state.UsedMemory))
		s.gauge("redis_memory_max_bytes", "Memory that the shared limiter may use; 0 while unknown, and without a limit.",
			float64(state.MaxMemory))
		c.r.collectKeys(s, state.Keys)
	}
	if c.r.cfg.Database != nil {
		s.refusing("database", "database", c.r.cfg.Database())
	}
	c.r.collectStored(s)
	if c.r.cfg.Leases != nil {
		state := c.r.cfg.Leases()
		s.counter("leases_drawn_units_total", "Units of leased policies that the node drew ahead.", state.Drawn)
		s.counter("leases_spent_units_total", "Drawn units that checks used.", state.Spent)
		s.counter("leases_returned_units_total", "Drawn units that the node gave back.", state.Returned)
		s.counter("leases_checks_total", "Requests that the node answered from drawn units, without a call of the shared limiter.",
			state.Answered)
		s.gauge("leases_held_units", "Drawn units that the node holds now.", float64(state.Held))
		s.gauge("leases_held_counters", "Counters of which the node holds drawn units now.", float64(state.Counters))
	}
	if c.r.cfg.Admission != nil {
		state := c.r.cfg.Admission()
		s.counter("overloaded_total",
			"Checks and batches that were answered 503 because the queue in front of the limiter was full. They are no decisions.",
			state.Overloaded)
		s.gauge("admission_waiting",
			"Weight of the checks that wait in the queue in front of the limiter: 1 for a check, an eighth of its checks for a batch.",
			float64(state.Waiting))
		s.gauge("admission_in_service", "Weight of the checks that the limiter decides or whose answer is written.", float64(state.InService))
	}
	if c.r.cfg.AuditLines != nil {
		s.gauge("audit_lines", "Lines of the audit log when the node last published its head, which is in the log.",
			float64(c.r.cfg.AuditLines()))
	}
	if c.r.cfg.Connections != nil {
		state := c.r.cfg.Connections()
		s.gauge("connections", "Connections that the listener has now.", float64(state.Open))
		s.gauge("connections_limit", "Connections that the listener may have.", float64(state.Limit))
		const help = "Connections that the listener ended at its limit: idle ones that were closed, and new ones that were refused."
		s.counter("connections_ended_total", help, state.Evicted, "cause", "idle")
		s.counter("connections_ended_total", help, state.Refused, "cause", "refused")
	}
	if c.r.cfg.ConcurrencyLeases != nil {
		s.concurrencyLeases(c.r.cfg.ConcurrencyLeases())
	}
	if c.r.cfg.Reservations != nil {
		s.reservations(c.r.cfg.Reservations())
	}
	if c.r.cfg.DeniedRequests != nil {
		s.counter("api_requests_denied_total",
			"Requests to the API, without checks, that were denied by HEADGATE_API_RATE or HEADGATE_API_RATE_PER_ADDRESS.",
			c.r.cfg.DeniedRequests())
	}
	if c.r.cfg.Log != nil {
		state := c.r.cfg.Log()
		s.counter("log_lines_dropped_total", "Log lines that were dropped because the log target was blocked or returned errors.", state.Dropped)
		s.counter("log_lines_folded_total", "Lines that repeat another of the same minute and were folded into one line.",
			state.Folded)
	}
	s.gauge("build_info", "Always 1; the labels name the running build.",
		1, "version", c.r.cfg.Version, "revision", c.r.cfg.Revision, "goversion", runtime.Version())
}

// collectStored sends two groups of metrics: about the units that failure modes admitted while
// Redis was unavailable, and about durable limits.
func (r *Recorder) collectStored(s sink) {
	if r.cfg.OutageJournal != nil {
		state := r.cfg.OutageJournal()
		s.gauge("journal_counters", "Counters for which costs wait that failure modes admitted while Redis was away.", float64(state.Keys))
		s.counter("journal_charged_units_total", "Units that failure modes admitted and that were charged later.", state.Charged)
		s.counter("journal_dropped_units_total",
			"Units that failure modes admitted and that were not charged later: too many counters, or a lost reply.", state.Dropped)
	}
	if r.cfg.Durable != nil {
		state := r.cfg.Durable()
		s.gauge("durable_waiting_states", "States of durable limits that changed and are not in the database yet.", float64(state.Waiting))
		s.gauge("durable_waiting_seconds", "Age of the oldest change of a durable limit that is not in the database yet; 0 if there is none.",
			state.WaitingFor.Seconds())
		s.counter("durable_written_states_total", "States of durable limits that the node wrote to the database.", state.Written)
		s.counter("durable_not_kept_total",
			"Changes of durable limits that are not written, because too many states waited. It should stay 0.", state.NotKept)
		s.gauge("durable_restoring", "1 while the durable limits are lost and not restored yet; the policies' on_failure decides.",
			truth(state.Restoring))
		s.counter("durable_restored_total", "Restorations of the durable limits, by any node. On a cluster, each shard of keys counts.",
			state.Restored)
	}
}

func (r *Recorder) collectDecisions(s sink) {
	all := new(totals)
	for _, shard := range r.shards {
		all.add(&shard.tallies)
	}
	for o := range nOutcomes {
		for reason := range nReasons {
			for m := range nModes {
				// Series of usual combinations are sent from the start, with the value 0. Otherwise
				// the first denial would create its series with the value 1, and the function
				// rate() of Prometheus would not see an increase.
				n := all.decisions[o][reason][m]
				if n > 0 || m == modeEnforce && usual(o, enforcement.Reason(reasonNames[reason])) {
					s.counter("decisions_total", "Decisions, by outcome, reason, and mode of the check. Peeks do not count.",
						int64(n), "outcome", outcomeNames[o], "reason", reasonNames[reason], "mode", modeNames[m])
				}
			}
		}
	}
	for wire, outcomes := range all.wires {
		for o, n := range outcomes {
			s.counter("wire_decisions_total", "Decisions, by the protocol over which the check came, and outcome. Peeks do not count.",
				int64(n), "wire", enforcement.Wire(wire).String(), "outcome", outcomeNames[o])
		}
	}
	s.counter("degraded_total", "Decisions by failure modes, because the shared limiter was unavailable.", int64(all.degraded))
	s.counter("shadow_refusals_total", "Allowed decisions that a shadow policy would have denied.", int64(all.shadow))
	for _, soft := range []struct {
		mode enforcement.PolicyMode
		n    uint64
	}{{enforcement.PolicyDegrade, all.degrade}, {enforcement.PolicyDelay, all.delay}} {
		s.counter("soft_limited_total", "Allowed decisions that were over a limit of a policy in this mode.",
			int64(soft.n), "mode", string(soft.mode))
	}
	for cause, n := range all.unmatched {
		s.counter("unmatched_total", "Checks that matched no policy, because the tenant has no plan or no policy of its plan matches.",
			int64(n), "kind", causeNames[cause])
	}
	upTo, count := r.retry.upTo(retryBounds)
	s.histogram("retry_after_seconds", "Retry-after of denials by limits and blocks, where waiting helps.",
		count, float64(r.retry.sum.Load())/1e3, retryBounds, upTo, 1e3)
}

// collectTenants sends the series that have the tenant as a label. Only the tenants in
// HEADGATE_METRICS_TENANTS have such series.
func (r *Recorder) collectTenants(s sink) {
	for _, slug := range slices.Sorted(maps.Keys(r.tenants)) {
		for o := range nOutcomes {
			s.counter("tenant_decisions_total", "Decisions of the tenants in HEADGATE_METRICS_TENANTS, by outcome.",
				int64(r.tenants[slug].decisions[o].Load()), "tenant", slug, "outcome", outcomeNames[o])
		}
		s.counter("tenant_unmatched_total", "Checks of the tenants in HEADGATE_METRICS_TENANTS that matched no policy.",
			int64(r.tenants[slug].unmatched.Load()), "tenant", slug)
	}
}

const (
	// MostTenantKeys is the maximum number of tenants that have their own series about the number
	// of their keys. The tenants in HEADGATE_METRICS_TENANTS have such series too and do not count.
	MostTenantKeys = 100
	// namedFrom is the part of its maximum number of keys that a tenant must use to get its own
	// series.
	namedFrom = 0.1
)

// collectKeys sends metrics that compare the number of keys of each tenant in the shared limiter
// with the tenant's maximum. A tenant has its own series if it uses at least the part namedFrom of
// its maximum. At most MostTenantKeys tenants get such series in this way. The tenants in
// HEADGATE_METRICS_TENANTS always have them.
func (r *Recorder) collectKeys(s sink, tenants []TenantKeys) {
	full, fullest, live := 0, 0.0, map[string]int64{}
	for slug := range r.tenants {
		live[slug] = 0
	}
	for _, t := range tenants {
		if t.Full {
			full++
		}
		fullest = max(fullest, float64(t.Live)/float64(max(t.Max, 1)))
		if _, named := live[t.Tenant]; named || float64(t.Live) >= namedFrom*float64(t.Max) && len(live) < MostTenantKeys+len(r.tenants) {
			live[t.Tenant] = t.Live
		}
	}
	s.gauge("redis_full_tenants", "Tenants whose new keys share counters, because they have as many keys as they may have.", float64(full))
	s.gauge("redis_fullest_tenant_ratio", "The largest part that a tenant uses of the keys that it may have.", fullest)
	for _, slug := range slices.Sorted(maps.Keys(live)) {
		s.gauge("redis_tenant_keys", "Estimate of the live keys of the tenants with most keys, and of those that a setting names.",
			float64(live[slug]), "tenant", slug)
	}
}

// collectCounts sends the number of rows of counts that wait to be written to the database, the
// results of flushes, and the number of counts that were folded or dropped.
func (r *Recorder) collectCounts(s sink) {
	var state FlushState
	if r.cfg.Flush != nil {
		state = r.cfg.Flush()
		s.gauge("counts_waiting_rows", "Rows of counts that are not in the database yet.", float64(state.WaitingRows))
		s.gauge("counts_waiting_seconds", "Age of the oldest count that is not in the database yet.", state.Waiting.Seconds())
		s.counter("count_flushes_total", "Transactions that add counts to the database, by result.", state.Flushed, "result", "ok")
		s.counter("count_flushes_total", "Transactions that add counts to the database, by result.", state.Failed, "result", "failed")
		s.counter("counts_folded_total", "Counts that were merged into sums to save memory.",
			int64(r.folded.Load())+max(state.Folded, 0))
	}
	s.counter("refusals_not_kept_total", "Denials whose explanation was not stored, because there were too many.",
		int64(r.refusals.notKept.Load())+max(state.NotKept, 0))
	s.counter("allowed_not_kept_total", "Allowed requests of the sample that were not stored, because there were too many.",
		int64(r.allowed.notKept.Load())+max(state.AllowedNotKept, 0))
}

// usual reports whether decisions with this outcome and this reason normally occur. Their series
// exist even with the value 0.
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
	s.histogram("limiter_seconds", "How long calls of the limiter take; one call may decide many requests.",
		count, time.Duration(r.limiter.seconds.sum.Load()).Seconds(), latencyBounds, upTo, 1e6)
	for v := range nVerdicts {
		name := enforcement.Verdict(v).String()
		n := r.limiter.verdicts[v].Load()
		if v == 0 {
			if n == 0 {
				continue
			}
			name = "none"
		}
		s.counter("limiter_requests_total", "Requests to the limiter, by verdict.", int64(n), "verdict", name)
	}
}

func (s sink) reservations(n enforcement.ReservationCounts) {
	s.gauge("reservations_outstanding", "Outstanding reservations of all tenants on all nodes, read every 10 seconds.", float64(n.Outstanding))
	const help = "Reservations that this node created and ended, and those that it refused because the tenant had too many, by event."
	s.counter("reservations_total", help, n.Created, "event", "created")
	s.counter("reservations_total", help, n.Refused, "event", "refused")
	s.counter("reservations_total", help, n.Settled, "event", "settled")
	s.counter("reservations_total", help, n.Released, "event", "released")
	s.counter("reservations_total", help, n.Expired, "event", "expired")
	const refunds = "Checks of this node that could be refunded, and refunds of checks, by event."
	s.counter("refundable_checks_total", refunds, n.Refundable, "event", "charged")
	s.counter("refundable_checks_total", refunds, n.Refunded, "event", "refunded")
}

func (s sink) concurrencyLeases(n enforcement.LeaseCounts) {
	const help = "Checks of this node that hold places of concurrency limits, renewals included, and leases that it ended, by event."
	s.counter("concurrency_leases_total", help, n.Held, "event", "held")
	s.counter("concurrency_leases_total", help, n.Released, "event", "released")
	s.counter("concurrency_leases_total", help, n.Revoked, "event", "revoked")
}

func (s sink) snapshot(state SnapshotState) {
	s.gauge("snapshot_loaded", "1 when a snapshot of tenants and plans is loaded.", truth(state.Loaded))
	s.gauge("snapshot_revision", "Control-plane revision of the snapshot in force.", float64(state.Revision))
	s.gauge("snapshot_age_seconds", "Seconds since the database last confirmed that the snapshot is the newest.", state.Age.Seconds())
	s.gauge("snapshot_problems", "Tenants, plans and keys that cannot be used as they are stored.", float64(state.Problems))
	s.gauge("snapshot_from_disk", "1 when the node started without its database, from the snapshot on disk.", truth(state.FromDisk))
	s.gauge("snapshot_held", "1 when a newer state of the database waits for an operator's confirmation.", truth(state.Held))
	s.gauge("snapshot_listening", "1 when the node receives notifications of changes; otherwise it only polls.", truth(state.Listening))
	s.counter("snapshot_swaps_total", "Snapshots that were put into force.", state.Swaps)
	s.gauge("snapshot_planless_tenants", "Tenants without a plan: no policy limits them.", float64(state.Planless))
	s.gauge("snapshot_objects", "Objects in the snapshot in force.", float64(state.Plans), "kind", "plan")
	s.gauge("snapshot_objects", "Objects in the snapshot in force.", float64(state.Tenants), "kind", "tenant")
	s.gauge("snapshot_objects", "Objects in the snapshot in force.", float64(state.Keys), "kind", "key")
}

// refusing sends up to two gauges about a store. The first says whether the store accepts writes.
// The second says since when the store has rejected writes; it exists only while the store rejects
// them. name is the prefix of the gauges, and store is the name of the store in their help texts.
func (s sink) refusing(name, store string, r Refusing) {
	s.gauge(name+"_writable", "1 unless the "+store+" is reachable and rejects writes.", truth(r.Since.IsZero()))
	if !r.Since.IsZero() {
		s.gauge(name+"_refusing_since_timestamp_seconds",
			"When the "+store+" began to reject writes, by its error code; no series while it accepts them.",
			float64(r.Since.UnixMilli())/1e3, "code", r.Code)
	}
}

// A sink is the channel on which Collect sends metrics to Prometheus. Its methods add "headgate_"
// to the names.
type sink chan<- prometheus.Metric

// counter and gauge send one value of a metric. labels contains the name of each label, followed by
// its value.
func (s sink) counter(name, help string, n int64, labels ...string) {
	s.send(prometheus.CounterValue, name, help, float64(max(n, 0)), labels)
}

func (s sink) gauge(name, help string, v float64, labels ...string) {
	s.send(prometheus.GaugeValue, name, help, v, labels)
}

func (s sink) send(kind prometheus.ValueType, name, help string, v float64, labels []string) {
	var names, values []string
	for pair := range slices.Chunk(labels, 2) {
		names, values = append(names, pair[0]), append(values, pair[1])
	}
	s <- prometheus.MustNewConstMetric(prometheus.NewDesc("headgate_"+name, help, names, nil), kind, v, values...)
}

// histogram sends a histogram of durations in seconds. bounds are in units of 1/parts seconds, and
// sum is in seconds. upTo[i] is the number of values that are at most bounds[i].
func (s sink) histogram(name, help string, count uint64, sum float64, bounds []int64, upTo []uint64, parts float64) {
	buckets := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		buckets[float64(bound)/parts] = upTo[i]
	}
	s <- prometheus.MustNewConstHistogram(prometheus.NewDesc("headgate_"+name, help, nil, nil), count, sum, buckets)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
