package web

import (
	"slices"
	"testing"
	"time"
)

// Unexported identifiers of the shell for the tests in package web_test.

var (
	Static    = static
	NewAssets = newAssets
	Recovered = recovered
)

const (
	MaxStreams      = maxStreams
	MaxForm         = maxForm
	MaxWideForm     = maxWideForm
	ThemeCookie     = themeCookie
	ZoneCookie      = zoneCookie
	RequestIDHeader = requestIDHeader
	MaxOwnStreams   = maxOwnStreams
)

// URLs returns the URL of each static file by its name.
func (a *assets) URLs() map[string]string { return a.urls }

// Table returns the route table.
func (w *Shell) Table() []Route { return w.rows }

// TakeSlot takes one of a party's slots for expensive pages.
func (w *Shell) TakeSlot(t testing.TB, party string) {
	if _, ok := w.cfg.Slots.Take(t.Context(), party); !ok {
		t.Fatalf("%s gets no slot", party)
	}
}

// SlotsTaken returns the number of slots in use.
func (w *Shell) SlotsTaken() int { return w.cfg.Slots.Taken() }

// SetStreams sets the number of open streams of the node.
func (w *Shell) SetStreams(n int) { w.streams.open = n }

// Streams returns the number of open streams of the node.
func (w *Shell) Streams() int {
	w.streams.mu.Lock()
	defer w.streams.mu.Unlock()
	return w.streams.open
}

// Drawings returns the number of streams of each drawing, in ascending order.
func (w *Shell) Drawings() (viewers []int) {
	w.streams.mu.Lock()
	defer w.streams.mu.Unlock()
	for _, d := range w.streams.drawings {
		viewers = append(viewers, d.viewers)
	}
	slices.Sort(viewers)
	return viewers
}

// SetStreamsOf sets the number of open streams of one person.
func (w *Shell) SetStreamsOf(user string, n int) { w.streams.own = map[string]int{user: n} }

// RecheckSessionsEvery sets how often streams check their session.
func (w *Shell) RecheckSessionsEvery(d time.Duration) { w.streams.recheck = d }

// must fails a test of this package.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
