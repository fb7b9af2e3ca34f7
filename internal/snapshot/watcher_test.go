package snapshot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tenants"
)

// watch runs a Watcher of w within the test's bubble until the test ends.
func watch(t *testing.T, w *world, cfg Config) *Watcher {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	watcher := NewWatcher(w, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- watcher.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	synctest.Wait()
	return watcher
}

// pass lets time pass, and everything happen that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestNotificationAndPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		watcher := watch(t, w, Config{Poll: time.Second})
		if s := watcher.Status(); !s.Loaded || s.Revision != 1 || s.Learnt != byStart || !s.Listening || s.Swaps != 1 {
			t.Fatalf("at start: %+v", s)
		}

		r := w.putPlan(aPlan(1, 2, 5))
		synctest.Wait() // no time passes
		if s := watcher.Status(); s.Revision != r || s.Learnt != byNotification {
			t.Errorf("after a notification: %+v", s)
		}

		w.with(func() { w.silent = true })
		r = w.putPlan(aPlan(1, 3, 6))
		synctest.Wait()
		if got := watcher.Current().Revision(); got == r {
			t.Error("learnt without being told or asking")
		}
		pass(time.Second)
		if s := watcher.Status(); s.Revision != r || s.Learnt != byPoll {
			t.Errorf("after polling: %+v", s)
		}

		// 10,000 edits at once are few loads.
		w.with(func() { w.silent = false; w.loads = 0 })
		for range 10_000 {
			r = w.putTenant(aTenant(1, 1))
		}
		synctest.Wait()
		pass(time.Second)
		if got := watcher.Current().Revision(); got != r {
			t.Errorf("revision %d, want %d", got, r)
		}
	})
}

func TestListenerCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		watcher := watch(t, w, Config{Poll: time.Second, RetryMin: time.Minute})
		w.breaks <- struct{}{}
		synctest.Wait()
		if watcher.Status().Listening {
			t.Error("still listening")
		}
		r := w.putPlan(aPlan(1, 2, 5))
		pass(time.Second)
		if s := watcher.Status(); s.Revision != r || s.Learnt != byPoll {
			t.Errorf("while nothing listens: %+v", s)
		}
		pass(time.Minute)
		if !watcher.Status().Listening {
			t.Error("does not listen again")
		}
		r = w.putPlan(aPlan(1, 3, 5))
		synctest.Wait()
		if s := watcher.Status(); s.Revision != r || s.Learnt != byNotification {
			t.Errorf("listening again: %+v", s)
		}
	})
}

func TestSourceAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		w.away = errors.New("connection refused")
		watcher := watch(t, w, Config{RetryMin: 500 * time.Millisecond, RetryMax: 4 * time.Second})
		if s := watcher.Status(); watcher.Current() != nil || s.Loaded || !errors.Is(s.Err, w.away) {
			t.Fatalf("away at start: %+v", s)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := watcher.WaitFor(soon, 0); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, w.away) {
			t.Errorf("WaitFor = %v", err)
		}
		w.with(func() { w.revisions = 0 })
		pass(10 * time.Minute)
		if n := w.revisions; n < 140 || n > 320 { // every 2 to 4 s
			t.Errorf("asked %d times in ten minutes", n)
		}
		w.with(func() { w.away = nil })
		if err := watcher.WaitFor(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := watcher.Status(); !s.Loaded || s.Err != nil {
			t.Fatalf("back: %+v", s)
		}
		good := watcher.Current()

		// Gone at run time: the last snapshot stays.
		w.with(func() { w.away = errors.New("broken pipe") })
		r := w.putPlan(aPlan(1, 2, 5))
		pass(10 * time.Minute)
		if s := watcher.Status(); watcher.Current() != good || s.Err == nil || time.Since(s.ConfirmedAt) < 9*time.Minute {
			t.Errorf("away at run time: %+v", s)
		}
		if err := watcher.Refresh(t.Context()); !errors.Is(err, w.away) {
			t.Errorf("Refresh = %v", err)
		}
		w.with(func() { w.away = nil })
		pass(time.Second)
		if s := watcher.Status(); s.Revision != r || s.Err != nil || time.Since(s.ConfirmedAt) > time.Second {
			t.Errorf("back again: %+v", s)
		}
	})
}

func TestReadYourWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(3)
		w.silent = true
		watcher := watch(t, w, Config{Poll: time.Hour})
		r := w.putKey(aKey("new", 2))
		if err := watcher.WaitFor(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if _, ok := watcher.Current().Key(keyHash("new")); !ok || watcher.Status().Learnt != byRefresh {
			t.Errorf("the new key is not there: %+v", watcher.Status())
		}
		// A revision that is yet to come is waited for.
		done := make(chan error, 1)
		go func() { done <- watcher.WaitFor(t.Context(), r+2) }()
		synctest.Wait()
		w.putKey(aKey("newer", 2))
		w.putKey(aKey("newest", 2))
		if err := watcher.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Errorf("WaitFor = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := watcher.WaitFor(ctx, r+99); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitFor of what never comes = %v", err)
		}
	})
}

func TestBeforeRun(t *testing.T) {
	t.Parallel()
	watcher := NewWatcher(smallWorld(2), Config{Logger: slog.New(slog.DiscardHandler)})
	if watcher.Current() != nil {
		t.Error("there is a snapshot before anything was loaded")
	}
	if err := watcher.Refresh(t.Context()); err != nil || watcher.Current() == nil {
		t.Errorf("Refresh = %v", err)
	}
}

func TestRestoredBackup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(30)
		for range 9 {
			w.putTenant(aTenant(1, 1))
		}
		watcher := watch(t, w, Config{})
		good := watcher.Current()
		w.with(func() { w.revision, w.loads = 5, 0 })
		pass(time.Minute)
		if s := watcher.Status(); watcher.Current() != good || !errors.Is(s.Held, errHeld) || w.loads != 0 {
			t.Fatalf("rewound: %+v after %d loads", s, w.loads)
		}
		if err := watcher.WaitFor(t.Context(), 6); !errors.Is(err, errHeld) {
			t.Errorf("WaitFor = %v", err)
		}
		// Edits on the restored database reach our revision again: what lies
		// between is not ours, so the whole world is read.
		for range 6 {
			w.putTenant(aTenant(1, 3))
		}
		pass(time.Second)
		if s := watcher.Status(); s.Held != nil || s.Revision != 11 {
			t.Fatalf("passed by: %+v", s)
		}
		if got := subject(t, watcher.Current(), "tenant-1"); got.Plan.Slug != "plan-3" {
			t.Errorf("tenant-1 is on %s", got.Plan.Slug)
		}
	})
}

func TestVanishedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(30)
		watcher := watch(t, w, Config{FullReload: time.Hour})
		w.with(func() { clear(w.tenants); clear(w.keys) })
		pass(time.Minute)
		if watcher.Status().Held != nil {
			t.Error("seen without reading the whole world")
		}
		pass(time.Hour)
		s := watcher.Status()
		if !errors.Is(s.Held, errHeld) || watcher.Current().Counts().Tenants != 30 {
			t.Fatalf("an empty world: %+v", s)
		}
		// Edits go on beside it, and it stays visible.
		r := w.putTenant(aTenant(1, 2))
		synctest.Wait()
		if s := watcher.Status(); s.Revision != r || s.Held == nil {
			t.Errorf("an edit beside a held world: %+v", s)
		}
		w.with(func() {
			for i := range 30 {
				w.tenants[tenantID(i+1)] = aTenant(i+1, 1)
			}
		})
		if err := watcher.sync(t.Context(), byRefresh, Options{Full: true}); err != nil || watcher.Status().Held != nil {
			t.Errorf("after the repair: %v, %+v", err, watcher.Status())
		}
	})
}

func TestReloadKnowsWhatWasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(30)
		w.silent = true
		watcher := watch(t, w, Config{Poll: time.Hour})
		for i := range 30 {
			w.remove("tenant", tenantID(i+1))
		}
		w.with(func() { w.forgetful = true })
		if err := watcher.sync(t.Context(), byRefresh, Options{Full: true}); err != nil || watcher.Current().Counts().Tenants != 0 {
			t.Errorf("Reload = %v; %+v", err, watcher.Current().Counts())
		}
	})
}

func TestHeldIncrementIsTriedOnceAnEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := smallWorld(20)
		watcher := watch(t, w, Config{Compile: Options{MaxTenants: 20}})
		w.putTenant(aTenant(21, 1))
		pass(time.Second)
		if !errors.Is(watcher.Status().Held, errHeld) {
			t.Fatal("not held")
		}
		w.with(func() { w.loads = 0 })
		pass(time.Minute)
		if w.loads != 0 {
			t.Errorf("%d loads of a held world without an edit", w.loads)
		}
		r := w.remove("tenant", tenantID(20))
		pass(time.Second)
		if s := watcher.Status(); s.Held != nil || s.Revision != r {
			t.Errorf("after there is room: %+v", s)
		}
	})
}

func TestSwapUnderReaders(t *testing.T) {
	t.Parallel()
	w := smallWorld(10)
	watcher := NewWatcher(w, Config{Logger: slog.New(slog.DiscardHandler)})
	if err := watcher.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := int64(0)
			for ctx.Err() == nil {
				s := watcher.Current()
				if s.Revision() < last {
					t.Errorf("revision %d after %d", s.Revision(), last)
				}
				last = s.Revision()
				k, ok := s.Key(keyHash("key-1"))
				if !ok || k.Subject.Tenant != "tenant-1" {
					t.Error("key-1 is lost")
					return
				}
				if by, _ := s.Subject("tenant-1"); by != k.Subject {
					t.Error("key and slug lead to different tenants of one snapshot")
				}
				if v := k.Subject.Plan.Version; int64(v) > s.Revision() {
					t.Errorf("version %d in revision %d", v, s.Revision())
				}
			}
		})
	}
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := range 50 {
				var r int64
				switch i {
				case 0:
					r = w.edit(func(r int64) {
						p := aPlan(2, int(r), 5)
						p.Revision = r
						w.plans[p.ID] = p
					})
				case 1:
					r = w.putKey(aKey(fmt.Sprintf("k%d", n), 1))
				case 2:
					row := aTenant(1, 1)
					if n%2 == 0 {
						row.Status = tenants.Suspended
					}
					r = w.putTenant(row)
				default:
					r = w.remove("key", fmt.Sprintf("k%d", n))
				}
				if err := watcher.WaitFor(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	stop()
	readers.Wait()
}
