package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
)

// A drawing is what all streams of one address show. The streams take turns: one of
// them draws, and all send what it drew.
type drawing struct {
	key     string
	viewers int // with mu of streams

	mu      sync.Mutex
	events  []drawnEvent
	last    int           // number of the newest event
	changed chan struct{} // closed by the next event
	drawer  *viewer       // who drew last; nil: it has left
	busy    bool          // it draws now
	began   time.Time     // when it did last
}

// A drawnEvent is the newest event of its name.
type drawnEvent struct {
	name, text string
	number     int
	sum        [sha256.Size]byte
}

// A viewer is one stream of a drawing.
type viewer struct {
	*drawing
	seen int // number of the last event that it was given
}

// view joins the drawing of a key.
func (s *streams) view(key string) *viewer {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.drawings[key]
	if s.drawings == nil {
		s.drawings = map[string]*drawing{}
	}
	if d == nil {
		d = &drawing{key: key, changed: make(chan struct{})}
		s.drawings[key] = d
	}
	d.viewers++
	return &viewer{drawing: d}
}

// unview leaves a drawing, and forgets it if nobody views it.
func (s *streams) unview(v *viewer) {
	s.mu.Lock()
	if v.viewers--; v.viewers == 0 {
		delete(s.drawings, v.key)
	}
	s.mu.Unlock()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.drawer == v {
		v.drawer, v.busy = nil, false
	}
}

// due reports whether the viewer is to draw now: it drew last, or who did has left or
// is late.
func (v *viewer) due(every time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy || v.drawer != nil && v.drawer != v && time.Since(v.began) < 2*every {
		return false
	}
	v.drawer, v.busy, v.began = v, true, time.Now()
	return true
}

// drawn ends what due began.
func (v *viewer) drawn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.drawer == v {
		v.busy = false
	}
}

// publish gives a fragment to all viewers, if it changed.
func (v *viewer) publish(ctx context.Context, f Fragment) error {
	var b bytes.Buffer
	if err := f.Body.Render(ctx, &b); err != nil {
		return fmt.Errorf("render %s: %w", f.Event, err)
	}
	body := showDirections(b.Bytes())
	sum := sha256.Sum256(body)
	v.mu.Lock()
	defer v.mu.Unlock()
	events := v.events[:0:0] // those who read have the old slice
	for _, e := range v.events {
		if e.name != f.Event {
			events = append(events, e)
		} else if e.sum == sum {
			return nil
		}
	}
	v.last++
	v.events = append(events, drawnEvent{f.Event, eventText(f.Event, string(body)), v.last, sum})
	close(v.changed)
	v.changed = make(chan struct{})
	return nil
}

// news is what the viewer was not given yet, and what is closed when there is more.
func (v *viewer) news() (text string, changed <-chan struct{}) {
	v.mu.Lock()
	events, last, changed := v.events, v.last, v.changed
	v.mu.Unlock()
	var b strings.Builder
	for _, e := range events { // oldest first
		if e.number > v.seen {
			b.WriteString(e.text)
		}
	}
	v.seen = last
	return b.String(), changed
}

// streamLines ends lines as a browser takes them to: in a stream a carriage
// return begins a new line too, and a text with one begins no event of its own.
var streamLines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// eventText is an event as it is sent.
func eventText(name, body string) string {
	var event strings.Builder
	event.WriteString("event: " + name + "\n")
	for line := range strings.Lines(streamLines.Replace(body)) {
		event.WriteString("data: " + strings.TrimRight(line, "\n") + "\n")
	}
	event.WriteString("\n")
	return event.String()
}
