package snapshot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tenants"
)

// A useLog is a KeyUseStore that keeps each flush, with the minute of the test in which it came.
type useLog struct {
	start time.Time

	mu      sync.Mutex
	away    error
	flushes [][]tenants.KeyUse
	minutes []int
}

func (l *useLog) AddKeyUses(_ context.Context, uses []tenants.KeyUse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away != nil {
		return l.away
	}
	l.flushes, l.minutes = append(l.flushes, uses), append(l.minutes, int(time.Since(l.start)/time.Minute))
	return nil
}

func (l *useLog) setAway(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = err
}

// used returns the keys of flush i.
func (l *useLog) used(i int) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, u := range l.flushes[i] {
		ids = append(ids, u.ID)
	}
	return ids
}

// Uses are flushed once a minute, after a failure with the next flush, and at the end. A key that is not used is not
// written again.
func TestKeyUsesAreFlushed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(2)
		s, _ := Compile(nil, w.changes(), Options{Full: true})
		use := func(id string) {
			k, ok := s.Key(keyHash(id))
			if !ok {
				t.Fatalf("no key %s", id)
			}
			for range 3 {
				k.Use(time.Now())
			}
		}
		ids := slices.Sorted(func(yield func(string) bool) {
			for _, k := range s.keys.All {
				if !yield(k.ID) {
					return
				}
			}
		})
		if len(ids) < 2 {
			t.Fatalf("keys %v", ids)
		}
		log := &useLog{start: time.Now()}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- NewKeyUseFlusher(func() *Snapshot { return s }, log, KeyUseConfig{}).Run(ctx) }()
		time.Sleep(10 * time.Second)
		use(ids[0])
		use(ids[1])
		time.Sleep(2 * time.Minute)
		log.setAway(errors.New("away"))
		use(ids[1])
		time.Sleep(2 * time.Minute)
		log.setAway(nil)
		time.Sleep(time.Minute)
		use(ids[0])
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !slices.Equal(log.minutes, []int{1, 5, 5}) {
			t.Fatalf("flushes in the minutes %v", log.minutes)
		}
		for i, want := range [][]string{ids[:2], {ids[1]}, {ids[0]}} {
			if got := log.used(i); !slices.Equal(got, want) {
				t.Errorf("flush %d wrote %v, want %v", i, got, want)
			}
		}
	})
}

// The last use of a key stays when the key or its tenant is compiled again, and when the
// whole world is loaded.
func TestKeyUsesOutliveSnapshots(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.putPlan(aPlan(1, 1, 5))
	w.putTenant(aTenant(1, 1))
	w.putKey(aKey("k", 1))
	s, _ := Compile(nil, w.changes(), Options{Full: true})
	at := time.UnixMilli(1_800_000_000_000)
	k, _ := s.Key(keyHash("k"))
	k.Use(at)
	want := []tenants.KeyUse{{ID: "k", At: at.UTC()}}
	for name, next := range map[string]func(Changes) *Snapshot{
		"key": func(c Changes) *Snapshot { n, _ := Compile(s, Changes{Revision: 9, Keys: c.Keys}, Options{}); return n },
		"tenant": func(c Changes) *Snapshot {
			n, _ := Compile(s, Changes{Revision: 9, Tenants: c.Tenants}, Options{})
			return n
		},
		"all": func(c Changes) *Snapshot { n, _ := Compile(s, c, Options{Full: true}); return n },
	} {
		if got := next(w.changes()).KeyUses(time.Time{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if late := s.KeyUses(at.Add(time.Millisecond)); len(late) != 0 {
		t.Errorf("used later: %v", late)
	}
	k.Use(at.Add(-time.Hour)) // the clock stepped back
	if got := s.KeyUses(time.Time{}); !slices.Equal(got, want) {
		t.Errorf("after a step back: %v, want %v", got, want)
	}
}
