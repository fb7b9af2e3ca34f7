package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// A shape describes the load on a service: the number of connections; the requests per second,
// where 0 means as many as possible; whether requests are batches; and the duration in seconds.
type shape struct {
	connections int
	rate        float64
	batch       bool
	seconds     float64
}

// serviceContender returns a contender that sends a load to a service and measures it. how
// describes the load.
func (b *bench) serviceContender(s *service, how shape, name string) contender {
	return contender{name, func(ctx context.Context) (slot, error) {
		cfg := load.Config{
			Dial: s.dial, Request: s.single, Connections: how.connections, Rate: how.rate,
			Duration: time.Duration(how.seconds * float64(time.Second)),
		}
		if how.batch {
			cfg.Request, cfg.Checks = *s.batch, batchSize
		}
		return b.measure(ctx, s, func(ctx context.Context) (*load.Result, error) { return load.Run(ctx, cfg) })
	}}
}

// measure runs a load on a service. It reads processor times and allocations before and after
// the load.
func (b *bench) measure(ctx context.Context, s *service, run func(context.Context) (*load.Result, error)) (slot, error) {
	before, err := b.read(ctx, s)
	if err != nil {
		return slot{}, err
	}
	result, err := run(ctx)
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
		generator: micros(after.generator - before.generator), behind: micros(after.behind - before.behind), allocs: (after.mallocs - before.mallocs) / checks,
		nanos: math.NaN(), degraded: float64(result.Degraded) / all, unavailable: float64(result.Unavailable) / all,
		failed: float64(result.Denied+result.Failed) / all,
	}, nil
}

// A reading holds totals up to one point in time: processor times in seconds, and the number of
// allocations.
type reading struct{ server, redis, generator, behind, mallocs float64 }

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
	if s.behind != nil {
		if r.behind, err = processor(s.behind.pid); err != nil {
			return r, err
		}
	}
	r.generator = ownProcessor()
	r.redis, err = processor(b.redis.pid)
	return r, err
}

// connectionCounts contains the numbers of connections with which the group http measures each
// service.
var connectionCounts = []int{1, 64, 256}

// measureHTTP measures the highest rate of each service, for each number in connectionCounts.
func (b *bench) measureHTTP(ctx context.Context) error {
	b.results.http = map[int]map[string]series{}
	// The load generator uses one thread, like wrk -t1, to leave processors to the server.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, connections := range connectionCounts {
		var contenders []contender
		for _, s := range b.results.services {
			contenders = append(contenders, b.serviceContender(s, shape{connections: connections, seconds: b.seconds}, s.name))
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

// measureRate measures the latency of each service at the rate offeredRate.
func (b *bench) measureRate(ctx context.Context) (err error) {
	var contenders []contender
	for _, s := range b.results.services {
		contenders = append(contenders, b.serviceContender(s, shape{connections: offeredConnections, rate: offeredRate, seconds: b.seconds}, s.name))
	}
	b.results.rate, err = b.rotate(ctx, fmt.Sprintf("%d requests/s", offeredRate), contenders)
	return err
}

// single returns the name of a service in the results of the group batch, if its requests have one
// check each.
func single(name string) string { return name + ", single checks" }

// measureBatch compares requests with batchSize checks with requests that have one check.
func (b *bench) measureBatch(ctx context.Context) (err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var contenders []contender
	for _, s := range b.results.services {
		if s.batch == nil || s.name == direct {
			continue
		}
		if s.name == exactTCP {
			contenders = append(contenders, b.serviceContender(s, shape{connections: 64, seconds: b.seconds}, single(s.name)))
		}
		contenders = append(contenders, b.serviceContender(s, shape{connections: 64, batch: true, seconds: b.seconds}, s.name))
	}
	b.results.batch, err = b.rotate(ctx, fmt.Sprintf("%d checks in a request", batchSize), contenders)
	return err
}
