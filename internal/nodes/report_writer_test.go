package nodes

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A board is a Store that records its calls.
type board struct {
	slow time.Duration // how long each call takes

	mu     sync.Mutex
	fail   error
	puts   []Node
	events []string
}

// fails says how calls end from now on.
func (b *board) fails(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// reports returns the reports so far.
func (b *board) reports() []Node {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.puts)
}

func (b *board) PutNode(ctx context.Context, n Node) error {
	err := b.call(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.puts = append(b.puts, n)
	b.note("put", err)
	return err
}

func (b *board) RemoveNode(ctx context.Context, id string) error {
	err := b.call(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note("remove "+id, err)
	return err
}

func (b *board) Census(context.Context) (Census, error) { return Census{}, nil }

func (b *board) call(ctx context.Context) error {
	timer := time.NewTimer(b.slow)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}

func (b *board) note(what string, err error) {
	if err != nil {
		what += " failed"
	}
	b.events = append(b.events, what)
}

// watched runs a Beacon on a board until end is called.
func watched(t *testing.T, b *board) (_ *Beacon, logged *strings.Builder, end func()) {
	t.Helper()
	logged = new(strings.Builder)
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	beacon := NewBeacon(Config{Store: b, Logger: log, Report: func(context.Context) Node { return Node{ID: "n1"} }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- beacon.Run(ctx) }()
	return beacon, logged, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (b *board) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.events, want) {
		t.Errorf("events %q, want %q", b.events, want)
	}
}

func TestBeaconReportsAtOnceAgainAndAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: 30 * time.Millisecond}
		began := time.Now()
		_, _, end := watched(t, b)
		time.Sleep(time.Minute)
		puts := b.reports()
		if !puts[0].At.Equal(began) {
			t.Errorf("the first report comes after %s", puts[0].At.Sub(began))
		}
		pauses := map[time.Duration]bool{}
		for i := 1; i < len(puts); i++ {
			pause := puts[i].At.Sub(puts[i-1].At) - b.slow
			if pause < Every*9/10 || pause > Every*11/10 {
				t.Errorf("report %d comes after %s", i, pause)
			}
			pauses[pause] = true
		}
		if len(pauses) < 2 {
			t.Error("reports come in step")
		}
		if n := len(puts); n < 11 || n > 14 {
			t.Errorf("%d reports in a minute", n)
		}
		end()
	})
}

// A report says how long the one before took, if that is known.
func TestBeaconTimesItsWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: 30 * time.Millisecond}
		beacon, _, end := watched(t, b)
		again := func(fail error) {
			synctest.Wait()
			time.Sleep(b.slow)
			synctest.Wait() // the one before is written
			b.fails(fail)
			beacon.Soon()
		}
		again(nil)
		again(errors.New("away"))
		again(nil)
		again(nil)
		end()
		var got []time.Duration
		for _, n := range b.reports() {
			got = append(got, n.Database.Report)
		}
		if want := []time.Duration{0, b.slow, b.slow, 0, b.slow}; !slices.Equal(got, want) {
			t.Errorf("reports say %v, want %v", got, want)
		}
	})
}

// A change is reported at once, and only once for several requests.
func TestBeaconReportsSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		beacon, _, end := watched(t, b)
		b.want(t, "put")
		for range 10 {
			beacon.Soon()
		}
		if n := len(b.reports()); n < 2 || n > 3 { // one may be asked for while one is made
			t.Errorf("%d reports", n)
		}
		end()
	})
}

func TestBeaconTakesTheNodeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{}
		_, logged, end := watched(t, b)
		b.want(t, "put")
		end()
		b.want(t, "put", "remove n1")
		if logged.Len() > 0 {
			t.Errorf("logged: %s", logged)
		}
	})
}

// A write that is under way when the node stops comes before the removal.
func TestBeaconEndsItsWriteFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: putTimeout / 2}
		_, _, end := watched(t, b)
		synctest.Wait() // it waits for the Store
		end()
		b.want(t, "put", "remove n1")
	})
}

// A write is tried again while the database is unavailable, and is then written once.
func TestBeaconWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{fail: errors.New("no connection")}
		_, logged, end := watched(t, b)
		for range 5 {
			time.Sleep(Every * 12 / 10)
		}
		if n := len(b.reports()); n < 5 {
			t.Errorf("%d tries", n)
		}
		b.fails(nil)
		time.Sleep(Every * 12 / 10)
		end()
		want := `level=WARN msg="this node cannot write its report; other nodes will show it as silent" error="no connection"
level=INFO msg="this node writes its report again"
`
		if logged.String() != want {
			t.Errorf("logged:\n%swant:\n%s", logged, want)
		}
	})
}

// A database that does not answer delays a caller by at most putTimeout, also at the end.
func TestBeaconGivesUpOnAHungDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &board{slow: time.Hour}
		_, logged, end := watched(t, b)
		time.Sleep(putTimeout)
		b.want(t, "put failed")
		time.Sleep(Every * 11 / 10) // the next one has begun
		began := time.Now()
		end()
		if took := time.Since(began); took > 2*putTimeout {
			t.Errorf("the end took %s", took)
		}
		b.want(t, "put failed", "put failed", "remove n1 failed")
		if !strings.Contains(logged.String(), "could not be removed") {
			t.Errorf("logged: %s", logged)
		}
	})
}
