package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// give is the trace that a drain has of a tenant, or nil.
func (o *drained) give(t *testing.T, tenant uint32) *trace {
	t.Helper()
	for key, s := range o.sketches {
		if key.Tenant == tenant && key.Name == SketchTrace {
			return s.(*trace)
		}
	}
	return nil
}

// A trace has each key of its sample with all of its requests, and as many requests as its bound allows,
// however the requests are spread over drains.
func TestATraceHasAllRequestsOfItsKeys(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 3))
	s := &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}
	keyOfUser := NewTraceKey(s.TenantID, "user")
	for _, test := range []struct{ users, each int }{{5, 10}, {100, 30}, {3000, 2}} {
		e := engineOf(fixedLimiter(), nil, nil)
		r := NewRecorder(Config{})
		made := make(map[uint64]int)
		denied := make(map[uint64]int)
		var all *trace
		drain := func() {
			switch got := r.drain().give(t, 7); {
			case all == nil:
				all = got
			case got != nil:
				all.absorb(got)
			}
		}
		total := test.users * test.each
		for i := range total {
			d := decide(e, s, enforcement.Enforce, "/u/1", 1, "user", fmt.Sprint("u", i%test.users))
			hash := keyOfUser.Hash(&d.Limits[1].Partition)
			made[hash]++
			if !d.Limits[1].Allowed {
				denied[hash]++
			}
			r.Record(d)
			if i%700 == 699 {
				drain()
			}
		}
		drain()
		again, err := decodeTrace(all.encode())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range []*trace{all, again} {
			if n := len(one.requests); n > traceRequests || total <= traceRequests && (n != total || one.level != 0) || total > traceRequests && n < traceRequests/20 {
				t.Errorf("%d users: %d of %d requests, level %d", test.users, n, total, one.level)
			}
			got, over := make(map[uint64]int), make(map[uint64]int)
			for _, q := range one.requests {
				for _, k := range one.keys[q.first : q.first+uint32(q.n)] {
					if p := one.policies[k.Policy]; p.Slug == "user" {
						got[k.Hash]++
						if k.Over {
							over[k.Hash]++
						}
					} else if p.Slug != "all" || k.Hash != 0 || k.Over {
						t.Fatalf("a key %+v of %+v", k, p)
					}
				}
			}
			for hash, n := range made {
				want := n
				if !inLevel(hash, one.level) {
					want = 0
				}
				if got[hash] != want || want > 0 && over[hash] != denied[hash] {
					t.Fatalf("%d users, level %d: key %x has %d requests, %d over its limit, not %d and %d",
						test.users, one.level, hash, got[hash], over[hash], want, denied[hash])
				}
			}
			for i, p := range one.policies {
				if one.seen[i] != int64(total) {
					t.Errorf("%s: saw %d of %d", p.Slug, one.seen[i], total)
				}
			}
		}
	}
}

// One script call decides many requests at one microsecond, and their counts arrive in any order. A
// replay has to decide the allowed ones first.
func TestATraceHasAllowedRequestsOfOneInstantFirst(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 3))
	s := &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}
	e, r := engineOf(fixedLimiter(), nil, nil), NewRecorder(Config{})
	var list []*enforcement.Decision
	for range 5 {
		d := decide(e, s, enforcement.Enforce, "/u/1", 1, "user", "u")
		d.At = 1_700_000_000_000_000
		list = append(list, d)
	}
	for _, i := range []int{4, 0, 3, 2, 1} {
		r.Record(list[i])
	}
	m := r.drain().give(t, 7).export(1_700_000_000, &trace{})
	over := make([]bool, len(m.Requests))
	for i := range m.Requests {
		over[i] = m.Requests[i].Keys[0].Over
	}
	if !slices.Equal(over, []bool{false, false, false, true, true}) {
		t.Errorf("over their limit: %v", over)
	}
}

// What a replay cannot repeat is marked, and tenants can opt out.
func TestWhatIsTraced(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 100))
	s := &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}
	e := engineOf(fixedLimiter(), nil, nil)
	r := NewRecorder(Config{})
	plain := decide(e, s, enforcement.Enforce, "/u/1", 5, "user", "secret")
	forced := decide(e, s, enforcement.Force, "/u/1", 1, "user", "secret")
	part := decide(e, s, enforcement.TakeUpTo, "/u/1", 1, "user", "secret")
	none := decide(e, s, enforcement.Enforce, "/other", 1, "user", "secret")
	for _, d := range []*enforcement.Decision{plain, forced, part, none} {
		r.Record(d)
	}
	got := r.drain().give(t, 7)
	if len(got.requests) != 3 || got.keys[0].Cost != 5 || got.requests[0].flags != 0 || got.requests[1].flags != flagForced || got.requests[2].flags != flagOther {
		t.Errorf("%+v", got)
	}
	if text := string(got.encode()); strings.Contains(text, "secret") || strings.Contains(text, "/u/1") {
		t.Errorf("the stored form has values: %s", text)
	}
	if d := got.requests[0].at; d != plain.At || d == 0 {
		t.Errorf("time %d, not %d", d, plain.At)
	}
	out := *s
	out.NoTrace = true
	r.Record(decide(e, &out, enforcement.Enforce, "/u/1", 1, "user", "u"))
	if got := r.drain().give(t, 7); got != nil {
		t.Errorf("without traces: %+v", got)
	}
}

// All tenants of a node together have a bound of traced requests in a minute. A minute whose sample is
// empty has no row.
func TestTracesOfANodeAreBounded(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("user", "/u/*", "", []string{"user"}, 100))
	e := engineOf(fixedLimiter(), nil, nil)
	r := NewRecorder(Config{})
	for tenant := range uint32(40) {
		s := &enforcement.Subject{Number: tenant + 1, Plan: plan}
		for i := range 100 {
			r.Record(decide(e, s, enforcement.Enforce, "/u/1", 1, "user", fmt.Sprint("u", i)))
		}
	}
	w := newWaiting()
	w.take(r.drain(), at)
	total := 0
	for key, s := range w.sketches {
		if key.Name == SketchTrace {
			total += len(s.sketch.(*trace).requests)
		}
	}
	if total > nodeTraceRequests || total < nodeTraceRequests/4 {
		t.Errorf("%d requests", total)
	}
	// Many tenants with one request each lose no more than the bound requires.
	for tenant := range uint32(nodeTraceRequests + 100) {
		s := &enforcement.Subject{Number: tenant + 1, Plan: plan}
		r.Record(decide(e, s, enforcement.Enforce, "/u/1", 1, "user", "u1"))
	}
	w, total = newWaiting(), 0
	w.take(r.drain(), at)
	for key, s := range w.sketches {
		if key.Name == SketchTrace {
			total += len(s.sketch.(*trace).requests)
		}
	}
	if total != nodeTraceRequests {
		t.Errorf("%d requests of as many tenants, not %d", total, nodeTraceRequests)
	}
	empty := &trace{level: 3, policies: []TracedPolicy{{Slug: "user", CountBy: []string{"user"}}}, seen: []int64{4}}
	w = newWaiting()
	w.absorb(SketchKey{At: minute, Tenant: 1, Name: SketchTrace}, empty, at)
	b := Batch{Node: "n"}
	w.give(&b, at, 0, true)
	if len(b.Sketches) != 0 {
		t.Errorf("rows %+v", b.Sketches)
	}
}

// A trace is written once, when its minute is over, and is not rolled up.
func TestATraceIsWrittenOnce(t *testing.T) {
	t.Parallel()
	one := &trace{policies: []TracedPolicy{{Slug: "all"}}, seen: []int64{1}}
	one.keys, one.requests = []TracedKey{{Cost: 1}}, []tracedRequest{{at: at.UnixMicro(), n: 1}}
	w := newWaiting()
	w.absorb(SketchKey{At: minute, Tenant: 1, Name: SketchTrace}, one, at)
	w.allow(2_000, 10)
	b := Batch{Node: "n"}
	if w.give(&b, at.Add(11*1e9), 10*1e9, false); len(b.Sketches) != 0 {
		t.Error("it is written before its minute is over")
	}
	if w.give(&b, at.Add(61*1e9), 10*1e9, false); len(b.Sketches) != 1 {
		t.Error("it is not written when its minute is over")
	}
	merged, err := (&Roller{}).merge(SketchTrace, [][]byte{b.Sketches[0].Doc})
	if merged != nil || err != nil {
		t.Errorf("rolled up: %s, %v", merged, err)
	}
}

func TestDecodeTraceRejectsOtherTexts(t *testing.T) {
	t.Parallel()
	one := &trace{policies: []TracedPolicy{{Slug: "all"}, {Slug: "user", CountBy: []string{"user"}}}, seen: []int64{1, 1}}
	one.keys, one.requests = []TracedKey{{Cost: 9}, {Policy: 1, Hash: 5, Cost: 1, Over: true, Overridden: true}}, []tracedRequest{{at: 77, n: 2, flags: flagForced}}
	text := string(one.encode())
	again, err := decodeTrace([]byte(text))
	if err != nil || !slices.Equal(again.keys, one.keys) || !slices.Equal(again.requests, one.requests) {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, bad := range []string{
		"", "{}x", strings.Replace(text, `"level":0`, `"level":65`, 1), strings.Replace(text, `"seen":[1,1]`, `"seen":[1]`, 1),
		strings.Replace(text, `"seen":[1,1]`, `"seen":[1,-1]`, 1), strings.Replace(text, `"requests":"`, `"requests":"AAAA`, 1),
		text[:len(text)-6] + `"}`, strings.Replace(text, `"requests":"`, `"requests":"!`, 1),
		strings.Replace(text, `{"slug":"all"},`, "", 1),
	} {
		if _, err := decodeTrace([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

// Recording a request in the trace does not allocate, once the lists of the minute have their size.
func TestTracingDoesNotAllocate(t *testing.T) {
	plan := compile(t, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 1<<30))
	s := &enforcement.Subject{Tenant: "acme", Number: 7, Plan: plan}
	d := decide(engineOf(fixedLimiter(), nil, nil), s, enforcement.Enforce, "/u/1", 1, "user", "u1")
	c := newContent(maxContents)
	p := c.minute(minute/60, s)
	for range 200 {
		c.trace(p, d)
	}
	p.trace.reset()
	if n := testing.AllocsPerRun(100, func() { c.trace(p, d) }); n != 0 || len(p.trace.requests) != 101 {
		t.Errorf("%v allocations, %d requests", n, len(p.trace.requests))
	}
}

// The hash of a value is another one for each tenant and policy, so traces do not link them, and keys whose
// partition begins with many bits 0 are not in the sample more often than others.
func TestTraceHashesDependOnTenantAndPolicy(t *testing.T) {
	t.Parallel()
	partition := [16]byte{15: 1} // 127 bits 0
	seen := make(map[uint64]bool)
	zeros := 0
	for _, tenant := range []string{"a", "b"} {
		for i := range 500 {
			k := NewTraceKey(tenant, fmt.Sprint("p", i))
			if again := NewTraceKey(tenant, fmt.Sprint("p", i)); again != k {
				t.Fatal("two nodes have different keys")
			}
			hash := k.Hash(&partition)
			if inLevel(hash, 2) {
				zeros++
			}
			seen[hash] = true
		}
	}
	if len(seen) != 1000 || zeros < 180 || zeros > 320 {
		t.Errorf("%d hashes, %d in the sample of level 2", len(seen), zeros)
	}
	plan := compile(t, spec("one", "/u/*", "", []string{"user"}, 100), spec("two", "/u/*", "", []string{"user"}, 100))
	r := NewRecorder(Config{})
	r.Record(decide(engineOf(fixedLimiter(), nil, nil), &enforcement.Subject{TenantID: "a", Tenant: "acme", Number: 7, Plan: plan}, enforcement.Enforce, "/u/1", 1, "user", "u"))
	got := r.drain().give(t, 7)
	if len(got.keys) != 2 || got.keys[0].Hash == got.keys[1].Hash || got.keys[0].Hash == 0 {
		t.Errorf("%+v", got.keys)
	}
}
