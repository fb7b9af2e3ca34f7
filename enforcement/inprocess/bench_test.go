package inprocess_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
)

// A meterCase is one limit that the benchmarks charge. The quotas are so high
// that everything is admitted: that is the dearer way.
var meterCases = []struct {
	name  string
	limit enforcement.Limit
}{
	{"gcra", enforcement.Limit{Algorithm: enforcement.GCRA, Quota: 1_000_000_000, Window: time.Second}},
	{"leaky_bucket", enforcement.Limit{Algorithm: enforcement.LeakyBucket, Quota: 1_000_000_000, Window: time.Second}},
	{"fixed_window", enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: enforcement.MaxQuota, Window: time.Second}},
	{"sliding_window_counter", enforcement.Limit{Algorithm: enforcement.SlidingWindowCounter, Quota: enforcement.MaxQuota, Window: time.Second}},
	{"sliding_window_log", enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: enforcement.MaxQuota, Window: time.Millisecond}},
}

// partitionOf spreads numbers over partitions as a hash would.
func partitionOf(i int) (p [16]byte) {
	r := rand.NewPCG(uint64(i), 7)
	binary.LittleEndian.PutUint64(p[:], r.Uint64())
	binary.LittleEndian.PutUint64(p[8:], r.Uint64())
	return p
}

func partitions(n int) [][16]byte {
	all := make([][16]byte, n)
	for i := range all {
		all[i] = partitionOf(i)
	}
	return all
}

// BenchmarkTake is one check of one charge: ours, and beside it the plainest
// bucket of floats behind a mutex, in a map in as many shards.
func BenchmarkTake(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		all := partitions(keys)
		for _, goroutines := range []int{1, 2, 64} {
			where := fmt.Sprintf("keys=%d/goroutines=%d", keys, goroutines)
			b.Run("plain_float_bucket/"+where, func(b *testing.B) {
				l := newPlain()
				spread(b, goroutines, func(n int, r *rand.PCG) {
					for range n {
						l.allow(all[r.Uint64()%uint64(keys)], 1e9, 1e9)
					}
				})
			})
			for _, c := range meterCases {
				b.Run(c.name+"/"+where, func(b *testing.B) {
					l, m := inprocess.New(inprocess.Config{}), c.limit.Compile(1)
					spread(b, goroutines, func(n int, r *rand.PCG) {
						charges := []enforcement.Charge{{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: m, Rev: 1, Cost: 1}}
						requests := []enforcement.Request{{Charges: charges}}
						outcomes := make([]enforcement.Outcome, 1)
						for range n {
							charges[0].Key.Partition = all[r.Uint64()%uint64(keys)]
							l.Take(context.Background(), requests, outcomes)
						}
					})
				})
			}
		}
	}
}

// BenchmarkTakeCharges is one check of several charges on hot counters.
func BenchmarkTakeCharges(b *testing.B) {
	m := meterCases[0].limit.Compile(1)
	for _, n := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("charges=%d", n), func(b *testing.B) {
			l := inprocess.New(inprocess.Config{})
			charges := make([]enforcement.Charge, n)
			for i := range charges {
				charges[i] = enforcement.Charge{Key: enforcement.Key{Tenant: 1, Cell: uint32(i)}, Meter: m, Rev: 1, Cost: 1}
			}
			requests, outcomes := []enforcement.Request{{Charges: charges}}, make([]enforcement.Outcome, 1)
			b.ReportAllocs()
			for b.Loop() {
				l.Take(context.Background(), requests, outcomes)
			}
		})
	}
}

// BenchmarkGrants is one check of a fixed window with grants. grants=0 is the plain check. spent takes its unit from a grant,
// because the window is used up.
func BenchmarkGrants(b *testing.B) {
	m := meterCases[2].limit.Compile(1)
	used := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 1, Window: 24 * time.Hour}.Compile(1)
	from := time.Now().Add(-time.Hour).UnixMicro()
	top := enforcement.GrantMeter(enforcement.MaxGrantUnits, from, from+48*time.Hour.Microseconds(), 1)
	for _, c := range []struct {
		name   string
		meter  *enforcement.Meter
		grants int
	}{{"grants=0", m, 0}, {"grants=1", m, 1}, {"grants=1/spent", used, 1}, {"grants=16", m, enforcement.MaxGrantsOfKey}} {
		b.Run(c.name, func(b *testing.B) {
			l := inprocess.New(inprocess.Config{})
			charges := []enforcement.Charge{{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: c.meter, Rev: 1, Cost: 1}}
			for i := range c.grants {
				key := enforcement.Key{Tenant: 1, Cell: enforcement.GrantCell, Partition: partitionOf(i)}
				charges = append(charges, enforcement.Charge{Key: key, Meter: top, Rev: 1, Grant: true})
			}
			requests, outcomes := []enforcement.Request{{Charges: charges}}, make([]enforcement.Outcome, 1)
			b.ReportAllocs()
			for b.Loop() {
				l.Take(context.Background(), requests, outcomes)
			}
			if outcomes[0].Verdict != enforcement.Granted {
				b.Error(outcomes[0].Verdict)
			}
		})
	}
}

// spread runs b.N operations on so many goroutines.
func spread(b *testing.B, goroutines int, run func(n int, r *rand.PCG)) {
	b.ReportAllocs()
	run(min(b.N, 200_000), rand.NewPCG(1, 99)) // warm
	b.ResetTimer()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for g := range goroutines {
		wg.Go(func() {
			r := rand.NewPCG(1, uint64(g))
			for {
				const batch = 512
				n := left.Add(-batch) + batch
				if n <= 0 {
					return
				}
				run(int(min(n, batch)), r)
			}
		})
	}
	wg.Wait()
}

// BenchmarkKeys reports, for so many keys of 24 bytes with expiry: the bytes and
// the nanoseconds that a new one takes, the nanoseconds of a check of a random
// one, and those of a sweep for each key, when it keeps all and when it drops all.
func BenchmarkKeys(b *testing.B) {
	for _, keys := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("plain_float_bucket/keys=%d", keys), func(b *testing.B) {
			if keys > 1_000_000 {
				b.Skip("its maps take minutes to fill and to collect")
			}
			for b.Loop() {
				l := newPlain()
				measureKeys(b, keys, func(i int) { l.allow(partitionOf(i), 1e9, 1e9) })
			}
		})
		b.Run(fmt.Sprintf("inprocess/keys=%d", keys), func(b *testing.B) {
			for b.Loop() {
				now := time.Now().UnixMicro()
				l := inprocess.New(inprocess.Config{MaxCells: keys, TenantCells: keys, Now: func() int64 { return now }})
				charges := []enforcement.Charge{{Key: enforcement.Key{Tenant: 1, Cell: 1}, Meter: meterCases[0].limit.Compile(1), Rev: 1, Cost: 1}}
				requests, outcomes := []enforcement.Request{{Charges: charges}}, make([]enforcement.Outcome, 1)
				measureKeys(b, keys, func(i int) {
					charges[0].Key.Partition = partitionOf(i)
					l.Take(context.Background(), requests, outcomes)
				})
				if l.Len() != keys {
					b.Fatalf("%d counters", l.Len())
				}
				for _, unit := range []string{"ns/swept-kept", "ns/swept-dropped"} {
					now += 1 // all are there; then a minute later
					start := time.Now()
					l.Sweep()
					b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(keys), unit)
					now += time.Minute.Microseconds()
				}
				if l.Len() != 0 {
					b.Fatalf("%d counters after a minute", l.Len())
				}
			}
		})
	}
}

func measureKeys(b *testing.B, keys int, check func(i int)) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	for i := range keys {
		check(i)
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(keys), "ns/new-key")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(keys), "B/key")
	const checks = 1_000_000
	r := rand.NewPCG(1, 99)
	start = time.Now()
	for range checks {
		check(int(r.Uint64() % uint64(keys)))
	}
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/checks, "ns/check")
}

// A plain limiter is the usual one: a token bucket of floats behind a mutex of
// its own, found in one of 256 maps. It never forgets a key.
type plain struct{ shards [256]plainShard }

type plainShard struct {
	mu      sync.RWMutex
	buckets map[[16]byte]*plainBucket
	_       [32]byte
}

type plainBucket struct {
	mu     sync.Mutex
	tokens float64
	last   time.Time
}

func newPlain() *plain {
	l := new(plain)
	for i := range l.shards {
		l.shards[i].buckets = map[[16]byte]*plainBucket{}
	}
	return l
}

func (l *plain) allow(key [16]byte, rate, burst float64) bool {
	s := &l.shards[key[0]]
	s.mu.RLock()
	k := s.buckets[key]
	s.mu.RUnlock()
	if k == nil {
		s.mu.Lock()
		if k = s.buckets[key]; k == nil {
			k = &plainBucket{tokens: burst, last: time.Now()}
			s.buckets[key] = k
		}
		s.mu.Unlock()
	}
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tokens = min(burst, k.tokens+now.Sub(k.last).Seconds()*rate)
	k.last = now
	if k.tokens < 1 {
		return false
	}
	k.tokens--
	return true
}
