package main

import (
	"math"
	"time"
)

// results contains the measurements of a run. The fields of groups that did not run are nil.
type results struct {
	machine  machine
	services []*service
	notBuilt []string
	gogc     string
	took     time.Duration
	others   string

	http         map[int]map[string]series // by number of connections and service
	rate, batch  map[string]series
	grpc         map[int]map[string]series // by number of descriptors in a call
	overload     map[string]series
	waysAtRate   map[string]series
	waysFull     map[string]series
	gateways     []string // names and versions
	onRedis      map[spread]map[string]series
	inMemory     map[spread]map[string]series
	scripts      map[string]series
	bytes        map[string]float64 // bytes per key, by library
	bytesInRedis float64
}

// A target is a goal for one measured value. The IDs T1 to T21 come from the design of the hot
// path.
type target struct {
	id, text string
	goal     float64
	atLeast  bool // the value must be at least goal; if false, at most goal
	unit     string
	measured func(*results) float64 // NaN if it was not measured
}

// met reports whether the measured value v reaches the target.
func (t *target) met(v float64) bool {
	if t.atLeast {
		return v >= t.goal
	}
	return v <= t.goal
}

// at returns a function for a target: the measurement v of the service name, divided by the
// measurement v of the service base. Both services are measured with the given number of
// connections.
func at(connections int, v value, name, base string) func(*results) float64 {
	return func(r *results) float64 { return pair(r.http[connections], v, name, base, ratio) }
}

// pair applies combine to the measurement v of two series from one rotation. If one of the two
// series was not measured, it returns NaN.
func pair(of map[string]series, v value, name, base string, combine func(value, series, series) float64) float64 {
	if len(of[name]) == 0 || len(of[base]) == 0 {
		return math.NaN()
	}
	return combine(v, of[name], of[base])
}

// above returns a function for a target: the measurement v of the service name minus the
// measurement v of base, with 64 connections.
func above(v value, name, base string) func(*results) float64 {
	return func(r *results) float64 { return pair(r.http[64], v, name, base, difference) }
}

// whole returns a function that rounds the result of f to a whole number. The fraction comes from
// background work and is not part of a check.
func whole(f func(*results) float64) func(*results) float64 {
	return func(r *results) float64 { return math.Round(f(r)) }
}

// inBatches returns a function for a target in the group batch: the checks per second of the
// service name, divided by those of the service base.
func inBatches(name, base string) func(*results) float64 {
	return func(r *results) float64 { return pair(r.batch, perSecond, name, base, ratio) }
}

// onRedis returns a function for a target: the checks per second of Headgate's engine, divided by
// those of the library base. Both use Redis.
func onRedis(how spread, base string) func(*results) float64 {
	return func(r *results) float64 { return pair(r.onRedis[how], perSecond, engineRedis, base, ratio) }
}

// slowest returns a function for a target: the time per check of the in-process limiter, divided by
// the time of the library base. The result is the largest of these ratios in all spreads with at
// most keys keys.
func slowest(base string, keys int) func(*results) float64 {
	return func(r *results) float64 {
		most := math.NaN()
		for _, how := range spreads {
			if how.keys > keys {
				continue
			}
			v := pair(r.inMemory[how], nanos, limiterMemory, base, ratio)
			if math.IsNaN(v) {
				return v
			}
			if math.IsNaN(most) || v > most {
				most = v
			}
		}
		return most
	}
}

// added returns a function for a target about the p99 latency at the rate offeredRate. The function
// computes how much more latency the service name has than noop, and how much more envoy has than
// noop. Each is the median of the differences within each round. The result is the first divided by
// the second. If the machine is so busy that envoy has no more latency than noop, the result is
// NaN.
func added(name string) func(*results) float64 {
	return func(r *results) float64 {
		envoys := pair(r.rate, p99, envoy, noop, difference)
		if envoys <= 0 {
			return math.NaN()
		}
		return pair(r.rate, p99, name, noop, difference) / envoys
	}
}

func unmeasured(*results) float64 { return math.NaN() }

var hot64, keys64 = spread{64, 1}, spread{64, libraryKeys}

// targets contains the targets of the first part of the report, in the order of the table.
var targets = []target{
	{"T1", "req/s, exact, 64 connections, against envoy", 3.5, true, "×", at(64, perSecond, exactTCP, envoy)},
	{"T2", "the same, 256 connections", 3.0, true, "×", at(256, perSecond, exactTCP, envoy)},
	{"T3", "processor time of server and Redis for each exact check, against envoy", 0.28, false, "×", at(64, bothTimes, exactTCP, envoy)},
	{"T4", "req/s, exact, 64 connections, against gubernator over HTTP", 5, true, "×", unmeasured},
	{"T5", "req/s, exact, 64 connections, against the no-op", 0.80, true, "×", at(64, perSecond, exactTCP, noop)},
	{"T6", "req/s, leased, 64 connections, against the no-op", 0.90, true, "×", at(64, perSecond, leased, noop)},
	{"T7", "req/s, leased, 64 connections, against envoy", 4.5, true, "×", at(64, perSecond, leased, envoy)},
	{"T8", "checks/s of exact POSTs with 32 checks, against single ones", 5, true, "×", inBatches(exactTCP, single(exactTCP))},
	{"T9", "checks/s of leased POSTs with 32 checks, against the no-op's", 0.90, true, "×", inBatches(leased, noop)},
	{"T10", "engine, exact, 64 goroutines, 100,000 keys, against redis_rate", 4, true, "×", onRedis(keys64, redisRate)},
	{"T11", "engine, exact, 64 goroutines, one key, against redis_rate", 12, true, "×", onRedis(hot64, redisRate)},
	{"T12", "engine, exact, 64 goroutines, 100,000 keys, against rueidislimiter", 1.2, true, "×", onRedis(keys64, rueidisLimit)},
	{"T13", "limiter in process, ns against x/time/rate in shards; the largest of six", 0.85, false, "×", slowest(rateSharded, libraryKeys)},
	{"T14", "limiter in process, one key, ns against one x/time/rate; the largest of three", 1.0, false, "×", slowest(rateBare, 1)},
	{"T14", "allocations of that", 0, false, "", whole(func(r *results) float64 {
		return r.inMemory[hot64][limiterMemory].median(allocations)
	})},
	{"T15", "p99 added to the no-op's at 2,000 req/s, exact, against envoy's", 0.30, false, "×", added(exactTCP)},
	{"T16", "the same, leased", 0.10, false, "×", added(leased)},
	{"T17", "p50, exact, one connection, against EVALSHA for each request", 1.05, false, "×", at(1, p50, exactTCP, direct)},
	{"T18", "Redis time of a GCRA check in a call of 32, against INCRBY and PEXPIRE in a script", 1.8, false, "×", func(r *results) float64 {
		return pair(r.scripts, redisTime, scriptBatch, scriptPlain, ratio)
	}},
	{"T19", "bytes for each key in process, 1,000,000 keys of 24 bytes, with expiry", 96, false, "B", func(r *results) float64 {
		return known(r.bytes, limiterMemory)
	}},
	{"T19", "the same, against go-limiter", 0.67, false, "×", func(r *results) float64 {
		return known(r.bytes, limiterMemory) / known(r.bytes, goLimiter)
	}},
	{"T20", "bytes for each key in Redis (MEMORY USAGE)", 110, false, "B", func(r *results) float64 {
		if r.onRedis == nil {
			return math.NaN()
		}
		return r.bytesInRedis
	}},
	{"T21", "allocations for each exact check above the no-op's", 2, false, "", whole(above(allocations, exactTCP, noop))},
	{"T21", "the same, leased", 0, false, "", whole(above(allocations, leased, noop))},
	{"-", "processor time of an embedded check above the no-op's", 12, false, "µs", above(server, embedded, noop)},
	{"-", "engine in process, one limit, one goroutine, one key", 600, false, "ns", func(r *results) float64 {
		return r.inMemory[spread{1, 1}][engineMemory].median(nanos)
	}},
}

// grpcTargets contains the targets of the group grpc.
var grpcTargets = []target{
	{"-", "calls/s of ShouldRateLimit, exact, 1 descriptor, against envoy", 3, true, "×", calls(1)},
	{"-", "the same, 10 descriptors", 3, true, "×", calls(10)},
}

// calls returns a function for a target in the group grpc: the calls per second of Headgate on
// Redis, divided by those of envoy.
func calls(descriptors int) func(*results) float64 {
	return func(r *results) float64 { return pair(r.grpc[descriptors], perSecond, exactTCP, envoyGRPC, ratio) }
}

func known(of map[string]float64, name string) float64 {
	if v, ok := of[name]; ok {
		return v
	}
	return math.NaN()
}
