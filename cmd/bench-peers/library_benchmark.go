package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislimiter"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/redis"
)

// libraryQuota is the quota in the benchmarks of libraries. It is so high that no request is
// denied, even if all requests use the same key.
const libraryQuota = 1_000_000_000

// libraryKeys is the number of keys in benchmarks with many keys. The name of a key has 24
// bytes.
const libraryKeys = 100_000

var keyNames = sync.OnceValue(func() []string { return numbered(libraryKeys) })

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("api-key-%016d", i)
	}
	return names
}

// A library is a rate-limit library that is called in this process.
type library struct {
	name string
	// worker returns a function that one goroutine can use. The function charges one unit to a
	// key and reports whether the request was allowed.
	worker func() func(key int) (bool, error)
}

// A spread is the number of goroutines that call a library, and the number of keys that they use.
type spread struct{ goroutines, keys int }

func (s spread) String() string {
	keys := "one key"
	if s.keys > 1 {
		keys = "100,000 keys"
	}
	if s.goroutines == 1 {
		return keys + ", 1 goroutine"
	}
	return fmt.Sprintf("%s, %d goroutines", keys, s.goroutines)
}

// spreads are the columns of the tables.
var spreads = []spread{{1, 1}, {2, 1}, {64, 1}, {1, libraryKeys}, {2, libraryKeys}, {64, libraryKeys}}

// libraryContender returns a contender that calls a library. Each goroutine reads the clock only
// once in stride calls, so that the clock does not distort the result.
func (b *bench) libraryContender(l library, how spread, stride int) contender {
	workers := make([]func(int) (bool, error), how.goroutines)
	for i := range workers {
		workers[i] = l.worker()
	}
	return contender{l.name, func(ctx context.Context) (slot, error) {
		redisBefore, _ := processor(b.redis.pid)
		ownBefore := ownProcessor()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var calls, denied atomic.Int64
		errs := make([]error, how.goroutines)
		began := time.Now()
		end := began.Add(time.Duration(b.seconds / 5 * float64(time.Second)))
		var wait sync.WaitGroup
		for i, take := range workers {
			wait.Go(func() {
				random := rand.NewPCG(uint64(i), rand.Uint64())
				for ctx.Err() == nil && time.Now().Before(end) {
					for range stride {
						allowed, err := take(int(random.Uint64() % uint64(how.keys)))
						if err != nil {
							errs[i] = err
							return
						}
						if !allowed {
							denied.Add(1)
						}
					}
					calls.Add(int64(stride))
				}
			})
		}
		wait.Wait()
		elapsed := time.Since(began)
		runtime.ReadMemStats(&after)
		redisAfter, _ := processor(b.redis.pid)
		n := float64(calls.Load())
		if err := errors.Join(errs...); err != nil || n == 0 {
			return slot{}, fmt.Errorf("%v calls: %w", n, err)
		}
		return slot{
			perSecond: n / elapsed.Seconds(), nanos: float64(elapsed) / n, p50: math.NaN(), p99: math.NaN(),
			server: (ownProcessor() - ownBefore) * 1e6 / n, redis: (redisAfter - redisBefore) * 1e6 / n, generator: math.NaN(),
			allocs: float64(after.Mallocs-before.Mallocs) / n, failed: float64(denied.Load()) / n,
		}, nil
	}}
}

// compare measures libraries in rotation, with each spread in spreads. stride is the parameter of
// libraryContender.
func (b *bench) compare(ctx context.Context, title string, libraries []library, stride int) (map[spread]map[string]series, error) {
	all := map[spread]map[string]series{}
	for _, how := range spreads {
		var contenders []contender
		for _, l := range libraries {
			contenders = append(contenders, b.libraryContender(l, how, stride))
		}
		found, err := b.rotate(ctx, title+", "+how.String(), contenders)
		if err != nil {
			return nil, err
		}
		all[how] = found
	}
	return all, nil
}

// Names of the libraries in the tables of the result.
const (
	engineRedis   = "headgate engine, exact on Redis"
	redisRate     = "redis_rate"
	throttledGCRA = "throttled"
	ulule         = "ulule/limiter"
	rueidisLimit  = "rueidislimiter"
)

// measureRedis compares libraries that store their counters in Redis. It also measures how much
// time a check takes in Redis itself.
func (b *bench) measureRedis(ctx context.Context) error {
	// The timeout is long. So a run can finish even if the machine stops Redis for 50 ms. The
	// timeout does not change the measured times.
	exact, err := redis.New(ctx, redis.Config{
		URL: b.redis.url, Prefix: "engine:", Timeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer exact.Close()
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- exact.Run(running) }()
	defer func() { stop(); <-ended }()

	libraries, err := b.redisLibraries(ctx, exact)
	if err != nil {
		return err
	}
	if b.results.onRedis, err = b.compare(ctx, "libraries on Redis", libraries, 1); err != nil {
		return err
	}
	return b.measureScript(ctx, exact)
}

func (b *bench) redisLibraries(ctx context.Context, exact enforcement.Limiter) ([]library, error) {
	client := b.redis.client
	names := keyNames()
	one := func(take func(key int) (bool, error)) func() func(int) (bool, error) {
		return func() func(int) (bool, error) { return take }
	}
	rate := redis_rate.NewLimiter(client)
	perHour := redis_rate.Limit{Rate: libraryQuota, Burst: libraryQuota, Period: window}

	store, err := throttledredis.NewCtx(client, "throttled:")
	if err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota)
	if err != nil {
		return nil, err
	}
	gcra.SetMaxCASAttemptsLimit(10_000) // the default of 10 attempts is too low if all goroutines share one key

	ululeStore, err := ululeredis.NewStoreWithOptions(client, limiter.StoreOptions{Prefix: "ulule"})
	if err != nil {
		return nil, err
	}
	counter := limiterOf(ululeStore)

	auto, err := rueidislimiter.NewRateLimiter(rueidislimiter.RateLimiterOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{b.redis.address}, Password: b.redis.password, DisableCache: true},
		KeyPrefix:    "rueidis", Limit: libraryQuota, Window: window,
	})
	if err != nil {
		return nil, err
	}
	return []library{
		engineLibrary(engineRedis, exact),
		{redisRate, one(func(key int) (bool, error) {
			r, err := rate.Allow(ctx, names[key], perHour)
			return err == nil && r.Allowed > 0, err
		})},
		{throttledGCRA, one(func(key int) (bool, error) {
			limited, _, err := gcra.RateLimitCtx(ctx, names[key], 1)
			return !limited, err
		})},
		{ulule, one(func(key int) (bool, error) {
			r, err := counter.Get(ctx, names[key])
			return !r.Reached, err
		})},
		{rueidisLimit, one(func(key int) (bool, error) {
			r, err := auto.Allow(ctx, names[key])
			return r.Allowed, err
		})},
	}, nil
}

// engineLibrary returns Headgate's engine as a library, with one policy that counts by
// user.
func engineLibrary(name string, l enforcement.Limiter) library {
	limit := enforcement.Limit{Name: "l1", Algorithm: enforcement.TokenBucket, Quota: libraryQuota, Window: window}
	plan, err := enforcement.CompilePlan("bench", 1, []enforcement.RuleSpec{{
		Policy: "per-user", CountBy: []string{"user"}, Limits: []enforcement.RuleLimit{{Limit: limit, Cell: 1, Meter: limit.Compile(1)}},
	}})
	if err != nil {
		panic(err) // a constant
	}
	engine := enforcement.NewEngine(l, enforcement.Config{})
	subject := &enforcement.Subject{Tenant: "bench", Number: 1, Home: "01", Plan: plan}
	names := keyNames()
	return library{name, func() func(int) (bool, error) {
		attributes := []enforcement.Attribute{{Name: "user"}}
		check := &enforcement.Check{Method: "GET", Cost: 1, Attributes: attributes}
		if err := check.SetPath("/api/things/42"); err != nil {
			panic(err)
		}
		decision := new(enforcement.Decision)
		return func(key int) (bool, error) {
			attributes[0].Value = names[key]
			engine.Decide(context.Background(), subject, check, decision)
			if decision.Degraded {
				return false, errors.New("the limiter did not decide")
			}
			return decision.Allowed, nil
		}
	}}
}

// plainScript counts in a fixed window with as few Redis commands as possible. measureScript
// compares Headgate's script with plainScript.
const plainScript = `
local n = redis.call('INCRBY', KEYS[1], ARGV[1])
if n == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return n`

// measureScript measures the time that a check takes inside Redis. It makes script calls with 32
// checks each, and compares them with calls of plainScript. It also measures the memory of a
// counter.
func (b *bench) measureScript(ctx context.Context, l enforcement.Limiter) error {
	client, script := b.redis.client, goredis.NewScript(plainScript)
	if err := script.Load(ctx, client).Err(); err != nil {
		return err
	}
	meter := enforcement.Limit{Algorithm: enforcement.GCRA, Quota: quota, Window: window}.Compile(1)
	requests, outcomes := make([]enforcement.Request, batchSize), make([]enforcement.Outcome, batchSize)
	for i := range requests {
		charge := enforcement.Charge{Key: enforcement.Key{Tenant: 2, Cell: 2}, Meter: meter, Rev: 1, Cost: 1}
		requests[i] = enforcement.Request{Home: "01", Charges: []enforcement.Charge{charge}}
	}
	timed := func(checks int, call func(i int) error) func(context.Context) (slot, error) {
		return func(ctx context.Context) (slot, error) {
			before, err := b.scriptMicros(ctx)
			if err != nil {
				return slot{}, err
			}
			const calls = 2000
			for i := range calls {
				if err := call(i); err != nil {
					return slot{}, err
				}
			}
			after, err := b.scriptMicros(ctx)
			return slot{redis: (after - before) / float64(calls*checks)}, err
		}
	}
	found, err := b.rotate(ctx, "scripts", []contender{
		{scriptPlain, timed(1, func(i int) error {
			return script.EvalSha(ctx, client, []string{"plain:" + strconv.Itoa(i)}, 1, window.Milliseconds()).Err()
		})},
		{scriptBatch, timed(batchSize, func(int) error {
			for i := range requests {
				p := &requests[i].Charges[0].Key.Partition
				for at := range p {
					p[at] = byte(rand.IntN(256))
				}
				p[0] = 0
				p[1] &= 0x1f
			}
			l.Take(ctx, requests, outcomes)
			for i := range outcomes {
				if outcomes[i].Verdict != enforcement.Granted {
					return fmt.Errorf("verdict %v: %w", outcomes[i].Verdict, outcomes[i].Err)
				}
			}
			return nil
		})},
	})
	if err != nil {
		return err
	}
	b.results.scripts = found
	b.results.bytesInRedis, err = b.counterBytes(ctx)
	return err
}

const (
	scriptPlain = "INCRBY and PEXPIRE"
	scriptBatch = "GCRA, 32 checks in a call"
)

// scriptMicros returns the total time that Redis has spent in scripts and functions, in
// microseconds.
func (b *bench) scriptMicros(ctx context.Context) (float64, error) {
	stats, err := b.redis.client.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for name, text := range stats["Commandstats"] {
		command := strings.TrimPrefix(name, "cmdstat_")
		if !slices.Contains([]string{"eval", "evalsha", "evalsha_ro", "fcall", "fcall_ro"}, command) {
			continue
		}
		_, rest, _ := strings.Cut(text, "usec=")
		number, _, _ := strings.Cut(rest, ",")
		micros, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return 0, err
		}
		sum += micros
	}
	return sum, nil
}

// counterBytes returns the mean memory of one counter of the limiter in Redis, in bytes, as MEMORY
// USAGE reports it.
func (b *bench) counterBytes(ctx context.Context) (float64, error) {
	sum, n := int64(0), 0
	keys := b.redis.client.Scan(ctx, 0, "engine:*", 1000).Iterator()
	for n < 1000 && keys.Next(ctx) {
		bytes, err := b.redis.client.MemoryUsage(ctx, keys.Val()).Result()
		if errors.Is(err, goredis.Nil) {
			continue // it has expired
		}
		if err != nil {
			return 0, err
		}
		sum, n = sum+bytes, n+1
	}
	if n == 0 {
		return math.NaN(), keys.Err()
	}
	return float64(sum) / float64(n), keys.Err()
}

var throttledQuota = throttled.RateQuota{MaxRate: throttled.PerHour(libraryQuota), MaxBurst: libraryQuota}

// limiterOf returns a limiter of the library ulule/limiter that stores its counters in store.
func limiterOf(store limiter.Store) *limiter.Limiter {
	return limiter.New(store, limiter.Rate{Period: window, Limit: libraryQuota})
}
