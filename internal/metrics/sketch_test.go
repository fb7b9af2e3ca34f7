package metrics

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
)

// textOf makes the text of key number i.
func textOf(i int) topText {
	return topText{tenant: uint32(1 + i%3), policy: "login", names: []string{"user"}, values: []topValue{{text: fmt.Sprint("u", i)}}}
}

// count adds key number i.
func count(t *topKeys, i int, n int64) {
	text := textOf(i)
	if e := t.add(text.id(), n); e != nil {
		e.text = text
	}
}

// stream makes a sketch of n random keys of so many, the low ones the most often.
func stream(n, keys int, seed uint64) *topKeys {
	t, random := newTopKeys(topCapacity), rand.New(rand.NewPCG(seed, 1))
	for range n {
		count(t, int(float64(keys)*random.Float64()*random.Float64()*random.Float64()), 1)
	}
	return t
}

// top gives the first keys of the ranking; limit 0: all.
func (t *topKeys) top(limit int) (keys []TopKey) {
	for i, k := range t.ranking() {
		if limit > 0 && i == limit {
			break
		}
		keys = append(keys, k.key())
	}
	return keys
}

// check compares a sketch with the true counts.
func (t *topKeys) check(tb testing.TB, truth map[topID]int64) {
	tb.Helper()
	total := int64(0)
	for _, n := range truth {
		total += n
	}
	bound := total / int64(t.capacity)
	if t.total != total || t.floor() > bound || len(t.entries) > t.capacity {
		tb.Fatalf("total %d of %d, floor %d of %d, %d entries", t.total, total, t.floor(), bound, len(t.entries))
	}
	held := map[topID]bool{}
	for _, k := range t.ranking() {
		held[k.id] = true
		if n := truth[k.id]; n > k.count || n < k.count-k.error || k.error > bound {
			tb.Fatalf("%v came %d times, told as %d with an error of %d (at most %d)", k.text, n, k.count, k.error, bound)
		}
	}
	for id, n := range truth {
		if !held[id] && n > t.floor() {
			tb.Fatalf("a key with %d is not there, above the floor of %d", n, t.floor())
		}
	}
	if len(truth) <= t.capacity && len(truth) != len(held) && t.absent == 0 {
		tb.Fatalf("%d of %d keys", len(held), len(truth))
	}
	t.checkHeap(tb)
}

// checkHeap checks the order of the heap and the places in it.
func (t *topKeys) checkHeap(tb testing.TB) {
	tb.Helper()
	if len(t.heap) != len(t.entries) || len(t.places) != len(t.entries) {
		tb.Fatalf("%d in the heap, %d entries, %d places", len(t.heap), len(t.entries), len(t.places))
	}
	for at, place := range t.heap {
		e := &t.entries[place]
		if e.at != at || t.places[e.id] != place || at > 0 && !t.less((at-1)/2, at) {
			tb.Fatalf("entry %d is misplaced: %+v", place, e)
		}
	}
}

// TestTheOldestOfTheLowestIsReplaced: of keys with the lowest count, the one that
// reached it first gives way.
func TestTheOldestOfTheLowestIsReplaced(t *testing.T) {
	t.Parallel()
	top := newTopKeys(3)
	for _, i := range []int{0, 1, 2, 0, 3, 4, 5} {
		count(top, i, 1)
	}
	// 1 and 2 give way to 3 and 4, which have 2 as 0 has; of these 0 is the oldest.
	var got []string
	for _, k := range top.top(0) {
		got = append(got, fmt.Sprint(k.Values[0], k.Count))
	}
	if want := []string{"u53", "u32", "u42"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestTopKeysAreWithinTheirError(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		top, truth := newTopKeys(1+random.IntN(30)), map[topID]int64{}
		keys, skew := 1+random.IntN(200), random.IntN(3)
		for range random.IntN(3_000) {
			i := random.IntN(keys)
			for range skew {
				i = random.IntN(i + 1)
			}
			n := int64(1)
			if random.IntN(4) == 0 {
				n += random.Int64N(50)
			}
			count(top, i, n)
			text := textOf(i)
			truth[text.id()] += n
		}
		top.check(t, truth)
	}
}

func TestTopKeysAreExactWhileTheyFit(t *testing.T) {
	t.Parallel()
	top := newTopKeys(topCapacity)
	for round := range 5 {
		for i := range topCapacity {
			count(top, i, int64(1+i*round))
		}
	}
	for _, k := range top.top(0) {
		var i int
		_, _ = fmt.Sscanf(k.Values[0], "u%d", &i)
		if want := int64(5 + 10*i); k.Count != want || k.Error != 0 {
			t.Errorf("%s: %d ± %d, want %d", k.Values[0], k.Count, k.Error, want)
		}
	}
	if list := top.top(3); len(list) != 3 || list[0].Values[0] != "u99" || list[2].Values[0] != "u97" {
		t.Errorf("top = %v", list)
	}
}

func TestMergedTopKeysAreWithinTheirErrorInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 11))
		capacity, truth := 1+random.IntN(25), map[topID]int64{}
		parts := make([]*topKeys, 2+random.IntN(8))
		for p := range parts {
			parts[p] = newTopKeys(capacity)
			keys, from := 1+random.IntN(60), random.IntN(40)
			for range random.IntN(800) {
				i := from + random.IntN(1+random.IntN(keys))
				count(parts[p], i, 1)
				text := textOf(i)
				truth[text.id()]++
			}
		}
		for len(parts) > 1 {
			a := random.IntN(len(parts))
			b := (a + 1 + random.IntN(len(parts)-1)) % len(parts)
			if random.IntN(2) == 0 {
				read, err := decodeTopKeys(parts[b].encode())
				if err != nil {
					t.Fatal(err)
				}
				parts[b] = read
			}
			parts[a].merge(parts[b])
			// What is merged may go on counting.
			for range random.IntN(30) {
				i := random.IntN(100)
				count(parts[a], i, 1)
				text := textOf(i)
				truth[text.id()]++
			}
			parts = slices.Delete(parts, b, b+1)
		}
		parts[0].check(t, truth)
	}
}

func TestKeysOfOtherTenantsMergeWithoutMoreError(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 13))
		all, truth, worst := newTopKeys(10), map[topID]int64{}, int64(0)
		var others []*topKeys
		for tenant := range 6 {
			one := newTopKeys(10)
			for range random.IntN(500) {
				i := tenant + 1_000*random.IntN(1+random.IntN(30)) // text and so identity are this tenant's own
				count(one, i, 1)
				text := textOf(i)
				truth[text.id()]++
			}
			for _, k := range one.ranking() {
				worst = max(worst, k.error)
			}
			others = append(others, one)
		}
		all.mergeOthers(others[:3])
		all.mergeOthers(others[3:])
		all.check(t, truth)
		for _, k := range all.ranking() {
			if k.error > worst {
				t.Errorf("error %d, of one tenant at most %d", k.error, worst)
			}
		}
	}
}

func TestTopKeysAreUsedAgain(t *testing.T) {
	t.Parallel()
	top := newTopKeys(5)
	for range 3 {
		truth := map[topID]int64{}
		for i := range 300 {
			key := i * i % 23
			count(top, key, 1)
			text := textOf(key)
			truth[text.id()]++
		}
		top.check(t, truth)
		top.reset()
		top.check(t, nil)
	}
}

func TestGatheredKeysAreThoseOfOneText(t *testing.T) {
	t.Parallel()
	top := newTopKeys(10)
	for i := range uint32(8) {
		// Two rules of one policy, as before and after a plan was published.
		top.add(topID{scope: i}, int64(i)+1).text = textOf(int(i / 2))
	}
	truth := map[topID]int64{}
	for i := range 8 {
		text := textOf(i / 2)
		truth[text.id()] += int64(i) + 1
	}
	top.gathered(10).check(t, truth)
}

func TestTextOfAKey(t *testing.T) {
	t.Parallel()
	long, wide := strings.Repeat("a", 1_000), strings.Repeat("é", 500)
	for _, value := range []string{long, wide} {
		cut, other := shorten(value), shorten(value+"b")
		if len(cut) > maxTopValue || len(cut) < maxTopValue-4 || !utf8.ValidString(cut) || !strings.HasPrefix(value, cut[:100]) {
			t.Errorf("%q is cut to %d bytes", cut, len(cut))
		}
		if cut == other || !strings.Contains(cut, "…") {
			t.Errorf("%q and %q", cut, other)
		}
	}
	if v := strings.Repeat("a", maxTopValue); shorten(v) != v {
		t.Error("what fits is cut")
	}
	a, b := redact(1, "login", "secret"), redact(1, "login", "secret")
	if a != b || !strings.HasPrefix(a, "sha256:") || len(a) != len("sha256:")+12 {
		t.Errorf("redacted to %q and %q", a, b)
	}
	if redact(2, "login", "secret") == a || redact(1, "logins", "ecret") == a || redact(1, "login", "Secret") == a {
		t.Error("two values share what stands for them")
	}
}

func TestTextsTellKeysApart(t *testing.T) {
	t.Parallel()
	of := func(policy string, values ...topValue) topText {
		return topText{policy: policy, names: []string{"a", "b"}, values: values}
	}
	seen := map[topID]topText{}
	for _, x := range []topText{
		of("p", topValue{text: "x"}, topValue{text: "y"}),
		of("p", topValue{text: "xy"}, topValue{}),
		of("p", topValue{}, topValue{text: "xy"}),
		of("p", topValue{missing: true}, topValue{text: "xy"}),
		of("p", topValue{missing: true}, topValue{missing: true}),
		of("p", topValue{}, topValue{}),
		of("px", topValue{}, topValue{text: "y"}),
		{policy: "p"},
		{tenant: 1},
		{tenant: 2},
	} {
		if other, known := seen[x.id()]; known {
			t.Errorf("%v and %v are one key", x, other)
		}
		seen[x.id()] = x
	}
}

func TestKeyOfARedactedTenantIsNotKept(t *testing.T) {
	t.Parallel()
	plan, err := enforcement.CompilePlan("p", 1, []enforcement.RuleSpec{{Policy: "login", CountBy: []string{"user", "ip/64", "org"}}})
	if err != nil {
		t.Fatal(err)
	}
	addr, canonical, _ := enforcement.CanonicalIP("2001:db8::1")
	c := &enforcement.Check{IP: addr, Attributes: []enforcement.Attribute{{Name: "user", Value: "u1"}, {Name: "ip", Value: canonical}}}
	var x topText
	x.describe(&enforcement.Subject{Number: 4}, plan.Rules[0], c, nil)
	want := []topValue{{text: "u1"}, {text: "2001:db8::/64"}, {missing: true}}
	if x.tenant != 4 || x.policy != "login" || !slices.Equal(x.values, want) || x.redacted {
		t.Errorf("%+v", x)
	}
	x.describe(&enforcement.Subject{Number: 4, Redact: true}, plan.Rules[0], c, nil)
	want = []topValue{{text: redact(4, "login", "u1")}, {text: redact(4, "login", "2001:db8::/64")}, {missing: true}}
	if !x.redacted || !slices.Equal(x.values, want) {
		t.Errorf("%+v", x)
	}
}

func BenchmarkTopKeys(b *testing.B) {
	for _, c := range []struct {
		name string
		keys int
	}{{"fit", topCapacity}, {"churn", 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			ids := make([]topID, c.keys)
			for i := range ids {
				text := textOf(i)
				ids[i] = text.id()
			}
			top, random := newTopKeys(topCapacity), rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for b.Loop() {
				top.add(ids[random.IntN(len(ids))], 1)
			}
		})
	}
}
