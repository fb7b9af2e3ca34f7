package metrics

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sums are those of each tenant and kind, which folding must not change.
func sums(w *waiting) map[CountKey]Counts {
	all := make(map[CountKey]Counts)
	for key, counts := range w.counts {
		key.At, key.Name = 0, ""
		sum := all[key]
		sum.Add(counts)
		all[key] = sum
	}
	return all
}

// fill adds rows of random minutes, tenants and names, and sketches beside them.
func fill(w *waiting, rng *rand.Rand, from time.Time, minutes, rows int) {
	d := &drained{counts: make(map[CountKey]*Counts), sketches: make(map[SketchKey]sketch)}
	for range rows {
		at := from.Unix()/60*60 + 60*rng.Int64N(int64(minutes))
		tenant := rng.Uint32N(10)
		d.add(CountKey{at, tenant, KindTotal, ""}, &Counts{Requests: rng.Int64N(100), OK: 1})
		d.add(CountKey{at, tenant, KindRoute, fmt.Sprint("/", rng.IntN(20))}, &Counts{Requests: rng.Int64N(100), Cost: 3})
		d.add(CountKey{at, tenant, KindPolicy, fmt.Sprint("p", rng.IntN(20))}, &Counts{Requests: rng.Int64N(100), OverLimit: 2})
		top := newTopKeys(topCapacity)
		text := topText{tenant: tenant, values: []topValue{{text: fmt.Sprint(rng.IntN(50))}}}
		top.add(text.id(), 1).text = text
		d.absorb(SketchKey{At: at, Tenant: tenant, Name: SketchLimitedKeys}, top)
	}
	w.take(d, from)
}

// While the database is unavailable, the waiting rows stay within their bound, or are three
// rows for each tenant and hour. The sums of each tenant stay the same.
func TestWaitingIsFoldedNotDropped(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		w := newWaiting()
		from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
		most := []int{0, 50, 200, 1000, 5000}[rng.IntN(5)]
		var folded int64
		for turn := range 20 {
			begin := from.Add(time.Duration(turn) * 10 * time.Minute)
			fill(&w, rng, begin, 10, 300)
			now := begin.Add(10 * time.Minute)
			before := sums(&w)
			folded += w.fold(most, now)
			if after := sums(&w); !maps.Equal(before, after) {
				t.Fatalf("seed %d: the sums changed:\n%s", seed, cmp.Diff(before, after))
			}
			hours := turn/6 + 2
			if rows := w.size(); rows > max(most, 10*3*hours) {
				t.Fatalf("seed %d: %d rows wait, %d were to", seed, rows, most)
			}
			weight := 0
			for _, s := range w.sketches {
				weight += s.weight
			}
			if weight != w.weight {
				t.Fatalf("seed %d: the weight is told as %d, and is %d", seed, w.weight, weight)
			}
		}
		if folded == 0 {
			t.Errorf("seed %d: nothing was folded with a bound of %d", seed, most)
		}
	}
}

// The oldest lose their names first, and nothing is folded that has room.
func TestWaitingFoldsTheOldestFirst(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for minute := range int64(4) {
		for route := range 25 {
			w.add(CountKey{from.Unix() + 60*minute, 1, KindRoute, fmt.Sprint("/", route)}, &Counts{Requests: 1})
		}
	}
	if n := w.fold(100, from); n != 0 {
		t.Errorf("%d rows folded with room for all", n)
	}
	w.add(CountKey{from.Unix() + 240, 1, KindRoute, "/"}, &Counts{Requests: 1})
	if n := w.fold(100, from); n != 28 || w.size() != 75 {
		t.Errorf("%d rows folded to %d, want 28 to 75", n, w.size())
	}
	named := make(map[int64]int)
	for key := range w.counts {
		if key.Name != foldedName {
			named[(key.At-from.Unix())/60]++
		}
	}
	if diff := cmp.Diff(map[int64]int{1: 22, 2: 25, 3: 25, 4: 1}, named); diff != "" {
		t.Errorf("rows with names by minute (-want +got):\n%s", diff)
	}
}

// Refusals that wait are bounded by number and by bytes.
func TestWaitingRefusals(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	small := make([]Refusal, maxWaitingRefusals+10)
	if n, _ := w.take(&drained{refusals: small}, time.Now()); n != 10 || len(w.refusals) != maxWaitingRefusals {
		t.Errorf("%d refusals are kept, %d not", len(w.refusals), n)
	}
	now := time.Now()
	for taken := 0; taken < maxWaitingRefusals; {
		var b Batch
		w.give(&b, now, time.Second, false)
		if len(b.Refusals) == 0 || len(b.Refusals) > batchRefusals {
			t.Fatalf("%d refusals in a batch", len(b.Refusals))
		}
		taken += len(b.Refusals)
	}
	if w.refusalBytes != 0 {
		t.Errorf("%d bytes of no refusals", w.refusalBytes)
	}
	large := make([]Refusal, 100)
	for i := range large {
		large[i].Path = string(make([]byte, 1<<20))
	}
	w.take(&drained{refusals: large}, now)
	if len(w.refusals) == 0 || len(w.refusals) > 16 {
		t.Errorf("%d refusals of 1 MB are kept", len(w.refusals))
	}
}

// A batch has the oldest rows, and no more than its bounds.
func TestBatchesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	rng := rand.New(rand.NewPCG(1, 1))
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	fill(&w, rng, from, 60, 10_000)
	before := sums(&w)
	given := newWaiting()
	last := int64(0)
	for {
		var b Batch
		w.give(&b, from.Add(2*time.Hour), time.Second, false)
		if len(b.Counts)+len(b.Sketches) == 0 {
			break
		}
		if len(b.Counts) > batchRows {
			t.Fatalf("%d rows in a batch", len(b.Counts))
		}
		for _, r := range b.Counts {
			if r.At < last && len(w.counts) > 0 {
				t.Fatalf("a row of %d after one of %d", r.At, last)
			}
			given.add(r.CountKey, &r.Counts)
		}
		if n := len(b.Counts); n > 0 && len(w.counts) > 0 {
			last = b.Counts[n-1].At
		}
	}
	if diff := cmp.Diff(before, sums(&given)); diff != "" {
		t.Errorf("the batches have other sums:\n%s", diff)
	}
	if n := w.unwritten(); n != 0 {
		t.Errorf("%d sketches are left", n)
	}
}

// sketched gives w one more of each of some tenants' lists, of so many keys.
func sketched(w *waiting, now time.Time, tenants, keys int) {
	d := &drained{sketches: make(map[SketchKey]sketch)}
	for tenant := range tenants {
		top := newTopKeys(topCapacity)
		for k := range keys {
			text := topText{tenant: uint32(tenant), values: []topValue{{text: fmt.Sprint(k)}}}
			top.add(text.id(), 1).text = text
		}
		d.absorb(SketchKey{At: now.Unix() / 60 * 60, Tenant: uint32(tenant), Name: SketchLimitedKeys}, top)
	}
	w.take(d, now)
}

// Few sketches are written with every flush, also while their minute lasts.
func TestFewSketchesAreWrittenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for second := range 60 {
		now := from.Add(time.Duration(second) * time.Second)
		sketched(&w, now, 9, 99)
		w.allow(1000, 10)
		var b Batch
		w.give(&b, now, 10*time.Second, false)
		if len(b.Sketches) != 9 || w.unwritten() != 0 {
			t.Fatalf("second %d: %d of 9 sketches are written", second, len(b.Sketches))
		}
	}
}

// Of many sketches those go first that wait longest, none waits for more than
// the interval, no flush writes much more than its part, and asking again in one
// flush gives no more.
func TestManySketchesAreWrittenInTurn(t *testing.T) {
	t.Parallel()
	const tenants, keys, parts = 200, 99, 10
	w := newWaiting()
	from := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	written := make(map[uint32]int)
	for second := range 59 {
		now := from.Add(time.Duration(second) * time.Second)
		sketched(&w, now, tenants, keys)
		w.allow(1000, parts)
		var b, again Batch
		w.give(&b, now, 10*time.Second, false)
		w.give(&again, now, 10*time.Second, false)
		if n := len(b.Sketches) + len(again.Sketches); n == 0 || n > tenants/parts+1 {
			t.Errorf("second %d: %d and %d sketches are written", second, len(b.Sketches), len(again.Sketches))
		}
		for i := range b.Sketches {
			written[b.Sketches[i].Tenant] = second
		}
		for tenant := range uint32(tenants) {
			if ago := second - written[tenant]; ago > 10 {
				t.Fatalf("second %d: the sketch of tenant %d is unwritten for %d s", second, tenant, ago)
			}
		}
	}
	var b Batch
	w.give(&b, from.Add(time.Minute), 10*time.Second, false)
	if w.unwritten() != 0 {
		t.Errorf("%d sketches are unwritten when their minute is over", w.unwritten())
	}
}

// BenchmarkWaiting measures the memory of a waiting row: of counts, and of sketches for
// each key.
func BenchmarkWaiting(b *testing.B) {
	for name, fill := range map[string]func(w *waiting, i int){
		"counts": func(w *waiting, i int) {
			w.add(CountKey{int64(i%60) * 60, uint32(i / 600), KindRoute, routes[i/60%10]}, &Counts{Requests: 1})
		},
		"keys": func(w *waiting, i int) {
			top := newTopKeys(topCapacity)
			for k := range topCapacity - 1 {
				text := topText{tenant: uint32(i), policy: "p", names: []string{"user"}, values: []topValue{{text: fmt.Sprintf("user-%08d", k)}}}
				top.add(text.id(), int64(k+1)).text = text
			}
			w.absorb(SketchKey{At: 60, Tenant: uint32(i), Name: SketchLimitedKeys}, top, time.Time{})
		},
	} {
		b.Run(name, func(b *testing.B) {
			const rows = 50_000
			var bytes float64
			for b.Loop() {
				before := heap()
				w := newWaiting()
				for i := 0; w.size() < rows; i++ {
					fill(&w, i)
				}
				bytes = float64(heap()-before) / float64(w.size())
				runtime.KeepAlive(&w)
			}
			b.ReportMetric(bytes, "bytes/row")
		})
	}
}

var routes = [...]string{"/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
