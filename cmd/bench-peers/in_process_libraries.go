package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// Names of the libraries in the tables of the result.
const (
	limiterMemory   = "headgate limiter in process"
	engineMemory    = "headgate engine in process, one limit"
	rateSharded     = "x/time/rate in a map of 256 shards"
	rateBare        = "x/time/rate, one limiter"
	goLimiter       = "go-limiter memorystore"
	throttledMemory = "throttled memstore"
	ululeMemory     = "ulule/limiter memory"
)

// A memory is a library that stores its counters in this process. One instance serves only the keys
// with which it was created.
type memory struct {
	library
	kept  any // a reference to the counters, so that the garbage collector does not free them
	sized bool
}

// memoryLibraries returns new instances of all libraries that store counters in this process.
// names are the names of the keys.
func memoryLibraries(ctx context.Context, names []string) ([]memory, error) {
	one := func(take func(key int) (bool, error)) func() func(int) (bool, error) {
		return func() func(int) (bool, error) { return take }
	}
	const perSecond = rate.Limit(libraryQuota / 3600.0)
	sharded, bare := newSharded(perSecond), rate.NewLimiter(perSecond, libraryQuota)

	store, err := memorystore.New(&memorystore.Config{Tokens: libraryQuota, Interval: window})
	if err != nil {
		return nil, err
	}
	gcraStore, err := memstore.NewCtx(0) // 0: no maximum number of keys
	if err != nil {
		return nil, err
	}
	gcra, err := throttled.NewGCRARateLimiterCtx(gcraStore, throttledQuota)
	if err != nil {
		return nil, err
	}
	gcra.SetMaxCASAttemptsLimit(10_000)
	cache := ululememory.NewStore()
	counter := limiterOf(cache)
	own := inprocess.New(inprocess.Config{MaxCells: 2 * len(names), TenantCells: 2 * len(names)})
	engine := inprocess.New(inprocess.Config{MaxCells: 2 * len(names), TenantCells: 2 * len(names)})
	return []memory{
		{limiterLibrary(own, len(names)), own, true},
		{engineLibrary(engineMemory, engine), engine, false},
		{library{rateSharded, one(func(key int) (bool, error) { return sharded.allow(names[key]), nil })}, sharded, true},
		{library{rateBare, one(func(key int) (bool, error) {
			_ = names[key]
			return bare.Allow(), nil
		})}, bare, false},
		{library{goLimiter, one(func(key int) (bool, error) {
			_, _, _, ok, err := store.Take(ctx, names[key])
			return ok, err
		})}, limiter.Store(store), true},
		{library{throttledMemory, one(func(key int) (bool, error) {
			limited, _, err := gcra.RateLimitCtx(ctx, names[key], 1)
			return !limited, err
		})}, gcra, true},
		{library{ululeMemory, one(func(key int) (bool, error) {
			r, err := counter.Get(ctx, names[key])
			return !r.Reached, err
		})}, cache, true},
	}, nil
}

// limiterLibrary returns Headgate's in-process limiter as a library, without the engine. Its keys
// are hashes of 16 bytes.
func limiterLibrary(l enforcement.Limiter, keys int) library {
	meter := enforcement.Limit{Algorithm: enforcement.GCRA, Quota: libraryQuota, Window: window}.Compile(1)
	random := rand.New(rand.NewPCG(1, 2))
	partitions := make([][16]byte, keys)
	for i := range partitions {
		for at := range partitions[i] {
			partitions[i][at] = byte(random.IntN(256))
		}
	}
	return library{limiterMemory, func() func(int) (bool, error) {
		charges := []enforcement.Charge{{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: meter, Rev: 1, Cost: 1}}
		requests, outcomes := []enforcement.Request{{Charges: charges}}, make([]enforcement.Outcome, 1)
		return func(key int) (bool, error) {
			charges[0].Key.Partition = partitions[key]
			l.Take(context.Background(), requests, outcomes)
			return outcomes[0].Verdict == enforcement.Granted, outcomes[0].Err
		}
	}}
}

// measureMemory compares libraries that store their counters in this process.
func (b *bench) measureMemory(ctx context.Context) error {
	memories, err := memoryLibraries(ctx, keyNames())
	if err != nil {
		return err
	}
	libraries := make([]library, len(memories))
	for i, m := range memories {
		libraries[i] = m.library
	}
	if b.results.inMemory, err = b.compare(ctx, "libraries in process", libraries, 256); err != nil {
		return err
	}
	return b.measureBytes(ctx)
}

// sizedKeys is the number of keys with which the memory of a library is measured. The result is the
// measured memory divided by sizedKeys.
const sizedKeys = 1_000_000

// measureBytes measures how much memory each library needs for one key, including the name of the
// key. Each library gets its own copy of the names. If a library stores a name, the bytes of its
// copy stay in memory and are counted.
func (b *bench) measureBytes(ctx context.Context) error {
	b.results.bytes = map[string]float64{}
	names := numbered(sizedKeys)
	all, err := memoryLibraries(ctx, names)
	if err != nil {
		return err
	}
	for i := range all {
		if !all[i].sized {
			continue
		}
		progress("memory of %d keys: %s", sizedKeys, all[i].name)
		n, err := b.bytesOf(ctx, i, names)
		if err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
		b.results.bytes[all[i].name] = n
	}
	return nil
}

func (b *bench) bytesOf(ctx context.Context, which int, names []string) (float64, error) {
	room := make([]string, len(names)) // the name of each key during its call; later cleared, so that only the library can keep the name
	all, err := memoryLibraries(ctx, room)
	if err != nil {
		return math.NaN(), err
	}
	one := all[which]
	clear(all)
	take := one.worker()
	before := heap()
	for key := range names {
		room[key] = strings.Clone(names[key])
		if allowed, err := take(key); err != nil || !allowed {
			return math.NaN(), fmt.Errorf("key %d: allowed %t, %w", key, allowed, err)
		}
		room[key] = ""
	}
	after := heap()
	runtime.KeepAlive(one.kept)
	runtime.KeepAlive(room)
	runtime.KeepAlive(take)
	return (after - before) / float64(len(names)), ctx.Err()
}

// heap returns the size of the live objects on the heap in bytes, after a garbage collection.
func heap() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection frees objects that had a finalizer
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// A shardedRate is the usual way to limit many keys with x/time/rate: a map of limiters that is
// divided into shards. It never deletes a key.
type shardedRate struct {
	seed   maphash.Seed
	limit  rate.Limit
	shards [256]struct {
		mu       sync.RWMutex
		limiters map[string]*rate.Limiter
		_        [32]byte // padding, so that two shards never share a cache line
	}
}

func newSharded(limit rate.Limit) *shardedRate {
	s := &shardedRate{seed: maphash.MakeSeed(), limit: limit}
	for i := range s.shards {
		s.shards[i].limiters = map[string]*rate.Limiter{}
	}
	return s
}

func (s *shardedRate) allow(key string) bool {
	shard := &s.shards[maphash.String(s.seed, key)%uint64(len(s.shards))]
	shard.mu.RLock()
	l := shard.limiters[key]
	shard.mu.RUnlock()
	if l == nil {
		shard.mu.Lock()
		if l = shard.limiters[key]; l == nil {
			l = rate.NewLimiter(s.limit, libraryQuota)
			shard.limiters[key] = l
		}
		shard.mu.Unlock()
	}
	return l.AllowN(time.Now(), 1)
}
