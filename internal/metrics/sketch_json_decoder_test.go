package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// byJSON is what encoding/json reads; ok false: an error.
func byJSON[T any](text string) (doc T, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&doc) != nil {
		return doc, false
	}
	_, err := d.Token()
	return doc, errors.Is(err, io.EOF)
}

// read converts what encoding/json read.
func (d *topDoc) read() topRead {
	r := topRead{d.Capacity, d.Total, d.Floor, d.Policies, make([]topReadKey, len(d.Keys))}
	for i := range d.Keys {
		k := &d.Keys[i]
		values := make([]topValue, len(k.Values))
		for i, v := range k.Values {
			if v == nil {
				values[i].missing = true
			} else {
				values[i].text = *v
			}
		}
		r.keys[i] = topReadKey{k.Tenant, k.Policy, values, k.Redacted, k.Count, k.Error}
	}
	return r
}

// sameAsJSON compares each scan of a text with encoding/json.
func sameAsJSON(t *testing.T, text string) (scanned int) {
	t.Helper()
	same := func(by string, ok bool, got any, valid bool, want any) {
		t.Helper()
		if !ok {
			return
		}
		scanned++
		if diff := cmp.Diff(want, got); !valid || diff != "" {
			t.Errorf("%s reads %q; encoding/json: %t (-want +got):\n%s", by, text, valid, diff)
		}
	}
	retry, ok := scanRetryTimes(text)
	want, valid := byJSON[retryDoc](text)
	same("retry times", ok, retry, valid, want)
	latency, ok := scanLatencies(text)
	wantLatency, valid := byJSON[latencyDoc](text)
	same("latencies", ok, latency, valid, wantLatency)
	remaining, ok := scanRemaining(text)
	wantRemaining, valid := byJSON[remainingDoc](text)
	same("remaining", ok, remaining, valid, wantRemaining)
	top, ok := scanTop(text)
	wantTop, valid := byJSON[topDoc](text)
	read := wantTop.read()
	same("top keys", ok, shownRead(&top), valid, shownRead(&read))
	return scanned
}

// shownRead is a topRead in a form that can be compared.
func shownRead(r *topRead) []string {
	list := []string{fmt.Sprintf("capacity %d, total %d, floor %d", r.capacity, r.total, r.floor)}
	for _, p := range r.policies {
		list = append(list, fmt.Sprintf("policy %q by %q", p.Policy, p.CountBy))
	}
	for _, k := range r.keys {
		list = append(list, fmt.Sprintf("tenant %d, policy %d, redacted %t, count %d, error %d", k.tenant, k.policy, k.redacted, k.count, k.error))
		for _, v := range k.values {
			list = append(list, fmt.Sprintf("value %+q %t", v.text, v.missing))
		}
	}
	return list
}

// awkward has values with and without characters that JSON escapes.
var awkward = []string{
	"", `"`, `\`, `\"`, "a\\", "<b>&amp;", "\u2028\u2029", "\x00\x1f\x7f", "日本語", "😀", "\xff\xfe", "\xed\xa0\x80", "null", "]}", `","c":`,
}

func awkwardTop() *topKeys {
	t := newTopKeys(topCapacity)
	for i, value := range awkward {
		x := topText{tenant: uint32(i) * 300_000_000, policy: value, names: []string{"user", value}, redacted: i%2 == 0}
		x.values = []topValue{{text: value}, {missing: i%3 == 0}}
		if e := t.add(x.id(), int64(1+i%4)); e != nil {
			e.text = x
		}
	}
	return t
}

func TestScanReadsWhatIsWritten(t *testing.T) {
	t.Parallel()
	full := newTopKeys(20)
	for i := range 500 {
		count(full, i%37, int64(1+i%5))
	}
	retry, latency := &retryTimes{}, &latencies{}
	for v := range int64(500) {
		retry.histogram.add(v*v*v, 1+v)
		latency.local.add(v*v, 1)
	}
	forgetful := &retryTimes{never: 3}
	for name, doc := range map[string][]byte{
		"no keys": newTopKeys(5).encode(), "awkward keys": awkwardTop().encode(), "full": full.encode(), "stream": stream(5_000, 300, 5).encode(),
		"retry": retry.encode(), "never": forgetful.encode(), "latency": latency.encode(),
		"nothing remains": remainingShares{}.encode(), "remaining": remainingShares{"a": new(remainingCounts), `"b\`: new(remainingCounts)}.encode(),
	} {
		if sameAsJSON(t, string(doc)) != 1 {
			t.Errorf("%s: not read by one scan: %s", name, doc)
		}
	}
}

// A scan of a damaged document returns what encoding/json returns, or nothing.
func TestScanOfDamagedDocuments(t *testing.T) {
	t.Parallel()
	docs := [][]byte{
		awkwardTop().encode(), stream(50, 4, 5).encode(), (&retryTimes{never: 3}).encode(),
		[]byte(`{"shared":[[1,2],[16,3]],"local":[[0,1]]}`), remainingShares{"a": new(remainingCounts), "b": new(remainingCounts)}.encode(),
		[]byte(`{"policies":{"a":[1],"a":[2]}}`), []byte(`{"buckets":[[01,2]]}`), []byte(`{"buckets":[[1,2]],"never":999999999999999999}`),
		[]byte(`{"buckets":[[1,1e2],[1,1.0]]}`), []byte(`{"buckets":[,]}`), []byte(`{"buckets":[[1,2],]}`), []byte(`{"buckets":[[1,2,3]]}`),
		[]byte(`{"capacity":1,"total":1,"policies":[],"keys":[{"t":4294967296,"p":0,"v":[],"c":1}]}`),
		[]byte(`{"capacity":1,"total":1,"policies":[],"keys":[{"t":1,"p":0,"v":["\ud800"],"r":true,"c":1}]}`),
		[]byte(`{"capacity":1,"total":1,"policies":[],"keys":[{"t":1,"p":0,"v":["\x"],"c":1}]}`),
	}
	for _, doc := range docs {
		sameAsJSON(t, string(doc))
	}
	random := rand.New(rand.NewPCG(1, 2))
	const letters = `{}[]",:\0123456789-.e nulltrue` + "\x00\x80\xc3\xa9"
	for range 2_000 {
		doc := slices.Clone(docs[random.IntN(len(docs))])
		for range 1 + random.IntN(3) {
			at := random.IntN(max(1, len(doc)))
			if len(doc) == 0 {
				break
			}
			switch random.IntN(4) {
			case 0:
				doc[at] = letters[random.IntN(len(letters))]
			case 1:
				doc = slices.Insert(doc, at, letters[random.IntN(len(letters))])
			case 2:
				doc = slices.Delete(doc, at, at+1)
			case 3:
				doc = doc[:at+1]
			}
		}
		sameAsJSON(t, string(doc))
	}
}

func FuzzScan(f *testing.F) {
	for _, doc := range [][]byte{
		awkwardTop().encode(), (&retryTimes{never: 3}).encode(), remainingShares{"a": new(remainingCounts)}.encode(),
		[]byte(`{"shared":[[1,2],[16,3]],"local":[[0,1]]}`),
	} {
		f.Add(string(doc))
	}
	f.Fuzz(func(t *testing.T, text string) { sameAsJSON(t, text) })
}

// A list returns the same for a document as its topKeys.
func TestTopListSaysTheSame(t *testing.T) {
	t.Parallel()
	var docs [][]byte
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 5))
		one, other := newTopKeys(1+random.IntN(30)), newTopKeys(20)
		for range random.IntN(400) {
			count(one, random.IntN(60), 1+random.Int64N(9))
			count(other, random.IntN(60), 1)
		}
		docs = append(docs, one.encode())
		one.merge(other)
		docs = append(docs, one.encode())
	}
	docs = append(docs, awkwardTop().encode())
	for _, doc := range docs {
		keys, err := decodeTopKeys(doc)
		if err != nil {
			t.Fatal(err)
		}
		list, err := decodeTopList(SketchLimitedKeys, doc)
		if err != nil {
			t.Fatal(err)
		}
		u := newUnion()
		u.add(list)
		got, _ := u.ranking(nil, keys.capacity)
		if list.total != keys.total || list.floor != keys.floor() || len(got) != len(keys.entries) {
			t.Fatalf("total %d, floor %d, %d keys; want %d, %d, %d", list.total, list.floor, len(got), keys.total, keys.floor(), len(keys.entries))
		}
		for i, want := range keys.ranking() {
			if diff := cmp.Diff(want.key(), got[i].key()); diff != "" {
				t.Fatalf("place %d (-want +got):\n%s", i, diff)
			}
			n, wrong := list.of(want.text.mark())
			if n != want.count || wrong != want.error {
				t.Fatalf("%d ± %d, want %d ± %d", n, wrong, want.count, want.error)
			}
		}
		absent := topText{tenant: 9, policy: "elsewhere"}
		if n, wrong := list.of(absent.mark()); n != keys.floor() || wrong != keys.floor() {
			t.Fatalf("a key that is not there: %d ± %d, want the floor of %d", n, wrong, keys.floor())
		}
	}
}

// A choice and a limit give the beginning of the whole ranking of the choice.
func TestRankingOfAUnion(t *testing.T) {
	t.Parallel()
	u := newUnion()
	for seed := range uint64(6) {
		list, err := decodeTopList(SketchLimitedKeys, stream(300, 90, seed).encode())
		if err != nil {
			t.Fatal(err)
		}
		u.add(list)
	}
	for _, choose := range []func(*topText) bool{nil, func(x *topText) bool { return x.tenant == 2 }, func(*topText) bool { return false }} {
		all, floor := u.ranking(choose, len(u.keys))
		if floor != u.floor {
			t.Errorf("floor %d of all, want %d", floor, u.floor)
		}
		sorted := sortRanked(slices.Clone(all))
		for limit := range len(all) + 2 {
			list, floor := u.ranking(choose, limit)
			want := u.floor
			if limit < len(all) {
				want = max(want, all[limit].count)
			}
			if len(list) != min(limit, len(all)) || floor != want {
				t.Fatalf("limit %d of %d: %d keys, floor %d, want %d", limit, len(all), len(list), floor, want)
			}
			for i := range list {
				if diff := cmp.Diff(sorted[i].key(), list[i].key()); diff != "" {
					t.Fatalf("limit %d, place %d (-want +got):\n%s", limit, i, diff)
				}
			}
		}
	}
}
