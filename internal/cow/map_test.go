package cow_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/cow"
)

// Every version of a Map has the content of its time, also after later versions were
// written.
func TestVersions(t *testing.T) {
	t.Parallel()
	type version struct {
		m    cow.Map[int, int]
		want map[int]int
	}
	check := func(t *rapid.T, at int, v *version) {
		got := map[int]int{}
		for k, value := range v.m.All {
			got[k] = value
		}
		if !maps.Equal(got, v.want) || v.m.Len() != len(v.want) {
			t.Fatalf("version %d: %d entries, want %d", at, v.m.Len(), len(v.want))
		}
		for k := range 100 {
			value, ok := v.m.Get(k)
			if want, has := v.want[k]; ok != has || value != want {
				t.Fatalf("version %d: %d is %d %v, want %d %v", at, k, value, ok, want, has)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		versions := []version{{want: map[int]int{}}}
		for range rapid.IntRange(1, 6).Draw(t, "edits") {
			last := &versions[len(versions)-1]
			next, by := version{last.m, maps.Clone(last.want)}, new(cow.Owner)
			// Enough to make more chunks twice.
			for range rapid.SampledFrom([]int{1, 3, 700}).Draw(t, "writes") {
				k, v := rapid.IntRange(0, 1000).Draw(t, "key"), rapid.Int().Draw(t, "value")
				if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
					next.m.Delete(by, k)
					delete(next.want, k)
				} else {
					next.m.Put(by, k, v)
					next.want[k] = v
				}
			}
			if rapid.IntRange(0, 9).Draw(t, "clear") == 0 {
				for k := range next.want {
					next.m.Delete(by, k)
				}
				clear(next.want)
			}
			versions = append(versions, next)
		}
		for i := range versions {
			check(t, i, &versions[i])
		}
	})
}

// An edit writes few of many chunks, and says which.
func TestEditWritesOneChunk(t *testing.T) {
	t.Parallel()
	var m cow.Map[int, int]
	first := new(cow.Owner)
	for i := range 100_000 {
		m.Put(first, i, i)
	}
	next, by := m, new(cow.Owner)
	next.Put(by, 7, -7)
	chunks, written := 0, 0
	next.Chunks(by, func(i int, entries map[int]int, w bool) {
		if i != chunks {
			t.Fatalf("chunk %d came at place %d", i, chunks)
		}
		if chunks++; !w {
			return
		}
		if written++; entries[7] != -7 {
			t.Error("the chunk that was written does not have the new value")
		}
	})
	if chunks != next.NumChunks() || chunks < 512 || written != 1 {
		t.Errorf("%d of %d chunks were written", written, chunks)
	}
	if v, _ := m.Get(7); v != 7 {
		t.Errorf("the version before has %d now", v)
	}
}
