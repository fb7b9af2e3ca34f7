package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// A slot is what one contender did in one round. Numbers that were not
// measured are NaN.
type slot struct {
	perSecond float64 // checks
	p50, p99  float64 // of requests, in milliseconds
	server    float64 // processor time for each check, in microseconds
	redis     float64
	generator float64
	allocs    float64 // of the server, for each check
	nanos     float64 // wall time for each check, of a library
	// Of each check: answered by on_failure, answered with 503, denied or failed.
	degraded, unavailable, failed float64
}

// A series is the slots of one contender, by round.
type series []slot

// A value picks a number of a slot.
type value func(slot) float64

func perSecond(s slot) float64   { return s.perSecond }
func p50(s slot) float64         { return s.p50 }
func p99(s slot) float64         { return s.p99 }
func server(s slot) float64      { return s.server }
func redisTime(s slot) float64   { return s.redis }
func generator(s slot) float64   { return s.generator }
func bothTimes(s slot) float64   { return s.server + s.redis }
func allocations(s slot) float64 { return s.allocs }
func nanos(s slot) float64       { return s.nanos }

// median of the finite numbers; NaN without any.
func median(all []float64) float64 {
	all = slices.DeleteFunc(slices.Clone(all), func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

// median of a value over the rounds.
func (s series) median(v value) float64 {
	all := make([]float64, 0, len(s))
	for _, one := range s {
		all = append(all, v(one))
	}
	return median(all)
}

// inRounds combines the slots of several series of one rotation, round by
// round, and returns the median.
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

// ratio is the median over the rounds of a value of s divided by that of base
// in the same round.
func ratio(v value, s, base series) float64 {
	return inRounds(func(slots ...slot) float64 { return v(slots[0]) / v(slots[1]) }, s, base)
}

// difference is the median over the rounds of a value of s less that of base.
func difference(v value, s, base series) float64 {
	return inRounds(func(slots ...slot) float64 { return v(slots[0]) - v(slots[1]) }, s, base)
}

// A contender of a rotation, and what it does for one slot.
type contender struct {
	name string
	run  func(context.Context) (slot, error)
}

// rotate lets the contenders take turns. The first round does not count. Each
// round starts with another contender, so that none always follows the same one.
func (b *bench) rotate(ctx context.Context, title string, contenders []contender) (map[string]series, error) {
	progress("%s: %d contenders, %d rounds", title, len(contenders), b.rounds+1)
	found := map[string]series{}
	for round := range b.rounds + 1 {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			runtime.GC() // of this process, so that no contender pays for another one's garbage
			s, err := c.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", title, c.name, err)
			}
			if ctx.Err() != nil {
				return nil, errors.New("interrupted")
			}
			if round > 0 {
				found[c.name] = append(found[c.name], s)
			}
		}
	}
	return found, nil
}

// A shape is how a service is loaded.
type shape struct {
	connections int
	rate        float64
	batch       bool
	seconds     float64
}

// loaded is a contender that loads a service.
func (b *bench) loaded(s *service, how shape, name string) contender {
	return contender{name, func(ctx context.Context) (slot, error) {
		cfg := load.Config{
			Dial: s.dial, Request: s.single, Connections: how.connections, Rate: how.rate,
			Duration: time.Duration(how.seconds * float64(time.Second)),
		}
		if how.batch {
			cfg.Request, cfg.Checks = *s.batch, batchSize
		}
		before, err := b.read(ctx, s)
		if err != nil {
			return slot{}, err
		}
		result, err := load.Run(ctx, cfg)
		if err != nil {
			return slot{}, err
		}
		after, err := b.read(ctx, s)
		if err != nil {
			return slot{}, err
		}
		checks := float64(result.Allowed)
		if checks == 0 {
			return slot{}, fmt.Errorf("no check was allowed: %+v, answers %v, %w", result.Counts, result.Statuses, result.Err)
		}
		all := checks + float64(result.Denied+result.Unavailable+result.Failed)
		micros := func(seconds float64) float64 { return seconds * 1e6 / checks }
		milliseconds := func(d time.Duration) float64 { return float64(d) / 1e6 }
		return slot{
			perSecond: checks / result.Elapsed.Seconds(),
			p50:       milliseconds(result.Latency.Quantile(0.5)), p99: milliseconds(result.Latency.Quantile(0.99)),
			server: micros(after.server - before.server), redis: micros(after.redis - before.redis),
			generator: micros(after.generator - before.generator), allocs: (after.mallocs - before.mallocs) / checks,
			nanos: math.NaN(), degraded: float64(result.Degraded) / all, unavailable: float64(result.Unavailable) / all,
			failed: float64(result.Denied+result.Failed) / all,
		}, nil
	}}
}

// A reading is what was used up to a moment.
type reading struct{ server, redis, generator, mallocs float64 }

func (b *bench) read(ctx context.Context, s *service) (r reading, err error) {
	r.mallocs = math.NaN()
	if s.mallocs {
		if r.mallocs, err = s.metric(ctx, "go_memstats_mallocs_total"); err != nil {
			return r, err
		}
	}
	if r.server, err = processor(s.pid); err != nil {
		return r, err
	}
	r.generator = ownProcessor()
	r.redis, err = processor(b.redis.pid)
	return r, err
}

// connectionCounts of the group http.
var connectionCounts = []int{1, 64, 256}

// measureHTTP finds the highest rate at several numbers of connections.
func (b *bench) measureHTTP(ctx context.Context) error {
	b.results.http = map[int]map[string]series{}
	// One thread, as wrk -t1 has: the generator must leave processors to the server.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, connections := range connectionCounts {
		var contenders []contender
		for _, s := range b.results.services {
			contenders = append(contenders, b.loaded(s, shape{connections: connections, seconds: b.seconds}, s.name))
		}
		found, err := b.rotate(ctx, fmt.Sprintf("http, %d connections", connections), contenders)
		if err != nil {
			return err
		}
		b.results.http[connections] = found
	}
	return nil
}

const (
	offeredRate        = 2000
	offeredConnections = 16
)

// measureRate finds the latency at a fixed rate.
func (b *bench) measureRate(ctx context.Context) (err error) {
	var contenders []contender
	for _, s := range b.results.services {
		contenders = append(contenders, b.loaded(s, shape{connections: offeredConnections, rate: offeredRate, seconds: b.seconds}, s.name))
	}
	b.results.rate, err = b.rotate(ctx, fmt.Sprintf("%d requests/s", offeredRate), contenders)
	return err
}

// single names a service in the group batch that gets one check in a request.
func single(name string) string { return name + ", single checks" }

// measureBatch compares requests of 32 checks with single ones.
func (b *bench) measureBatch(ctx context.Context) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var contenders []contender
	for _, s := range b.results.services {
		if s.batch == nil || s.name == direct {
			continue
		}
		if s.name == exactTCP {
			contenders = append(contenders, b.loaded(s, shape{connections: 64, seconds: b.seconds}, single(s.name)))
		}
		contenders = append(contenders, b.loaded(s, shape{connections: 64, batch: true, seconds: b.seconds}, s.name))
	}
	b.results.batch, err = b.rotate(ctx, fmt.Sprintf("%d checks in a request", batchSize), contenders)
	return err
}
