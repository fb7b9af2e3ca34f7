package main

import (
	"math"
	"slices"
)

// A slot holds the measurements of one contender in one round. A value that was not measured is
// NaN.
type slot struct {
	perSecond float64 // checks per second
	p50, p99  float64 // latency of requests, in milliseconds
	// Processor times per check, in microseconds. server is the time of the measured service, redis
	// of Redis, and generator of the load generator. behind is the time of the Headgate node that a
	// gateway asks.
	server    float64
	redis     float64
	generator float64
	behind    float64
	allocs    float64 // allocations of the server per check
	nanos     float64 // elapsed time per check, in nanoseconds; only measured for libraries
	// Fractions of the checks. degraded: a failure mode decided the check. unavailable: the check
	// got the status 503. failed: the check was denied or failed.
	degraded, unavailable, failed float64
}

// A series contains the slots of one contender, one for each round, in the order of the rounds.
type series []slot

// A value selects one of the measurements in a slot.
type value func(slot) float64

func perSecond(s slot) float64   { return s.perSecond }
func p50(s slot) float64         { return s.p50 }
func p99(s slot) float64         { return s.p99 }
func server(s slot) float64      { return s.server }
func redisTime(s slot) float64   { return s.redis }
func generator(s slot) float64   { return s.generator }
func bothTimes(s slot) float64   { return s.server + s.redis }
func behind(s slot) float64      { return s.behind }
func withBehind(s slot) float64  { return s.server + s.behind }
func allocations(s slot) float64 { return s.allocs }
func nanos(s slot) float64       { return s.nanos }

// median returns the median of the finite numbers in all. If there are none, it returns NaN.
func median(all []float64) float64 {
	all = slices.DeleteFunc(slices.Clone(all), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// median returns the median of the measurement v over all rounds.
func (s series) median(v value) float64 {
	all := make([]float64, 0, len(s))
	for _, one := range s {
		all = append(all, v(one))
	}
	return median(all)
}

// inRounds calls combine once for each round, with the slots of all series in this round. It
// returns the median of the results.
func inRounds(combine func(...slot) float64, all ...series) float64 {
	var values []float64
	for round := range all[0] {
		slots := make([]slot, len(all))
		for i, s := range all {
			if round >= len(s) {
				return math.NaN()
			}
			slots[i] = s[round]
		}
		values = append(values, combine(slots...))
	}
	return median(values)
}

// ratio divides the measurement v of s by the measurement v of base in each round. It returns the
// median of the quotients.
func ratio(v value, s, base series) float64 {
	return inRounds(func(slots ...slot) float64 { return v(slots[0]) / v(slots[1]) }, s, base)
}

// difference subtracts the measurement v of base from the measurement v of s in each round. It
// returns the median of the differences.
func difference(v value, s, base series) float64 {
	return inRounds(func(slots ...slot) float64 { return v(slots[0]) - v(slots[1]) }, s, base)
}
