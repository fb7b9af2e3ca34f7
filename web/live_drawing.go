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

// A drawing has the latest events of a live page. All streams with the same address, time zone, role and
// tenant share one drawing. One of these streams renders the events. Every stream sends the events to its
// own browser.
type drawing struct {
	key     string
	viewers int // guarded by streams.mu

	mu      sync.Mutex
	events  []drawnEvent
	last    int           // number of the newest event
	changed chan struct{} // closed by the next event
	drawer  *viewer       // the stream that renders; nil after this stream has ended
	busy    bool          // set while the drawer renders
	began   time.Time     // start of the last rendering
}

// A drawnEvent is the latest event with its name. sum is a hash of the event's HTML. publish compares
// hashes to find out whether the HTML has changed.
type drawnEvent struct {
	name, text string
	number     int
	sum        [sha256.Size]byte
}

// A viewer is one stream that sends the events of a drawing to a browser.
type viewer struct {
	*drawing
	seen int // number of the last event that was sent
}

// view adds a viewer to the drawing that has this key. If there is no such drawing, it creates it.
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

// unview removes a viewer from its drawing. If this was the last viewer, it deletes the drawing.
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

// due reports whether this viewer must render the events now. One viewer renders for all viewers of the
// drawing. If that viewer has left or is late, another viewer takes over.
func (v *viewer) due(every time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy || v.drawer != nil && v.drawer != v && time.Since(v.began) < 2*every {
		return false
	}
	v.drawer, v.busy, v.began = v, true, time.Now()
	return true
}

// drawn ends a rendering. The viewer calls it after it has rendered, if due returned true.
func (v *viewer) drawn() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.drawer == v {
		v.busy = false
	}
}

// publish renders a fragment. If the HTML has changed, the fragment becomes the latest event with its name.
func (v *viewer) publish(ctx context.Context, f Fragment) error {
	var b bytes.Buffer
	if err := f.Body.Render(ctx, &b); err != nil {
		return fmt.Errorf("render %s: %w", f.Event, err)
	}
	body := showDirections(b.Bytes())
	sum := sha256.Sum256(body)
	v.mu.Lock()
	defer v.mu.Unlock()
	events := v.events[:0:0] // a new slice, because viewers read the old one without the lock
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

// news returns the events that this viewer has not sent yet. The channel changed is closed when there are
// more events.
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

// streamLines replaces all kinds of line breaks with \n. In server-sent events, a carriage return also ends
// a line, so a text that contains one could start another event.
var streamLines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// eventText returns an event in the format of server-sent events.
func eventText(name, body string) string {
	var event strings.Builder
	event.WriteString("event: " + name + "\n")
	for line := range strings.Lines(streamLines.Replace(body)) {
		event.WriteString("data: " + strings.TrimRight(line, "\n") + "\n")
	}
	event.WriteString("\n")
	return event.String()
}
