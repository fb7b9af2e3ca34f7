package headgate

import (
	"slices"
	"sync"
	"time"
)

const (
	rememberMax  = time.Second
	denialsLimit = 10_000 // maximum number of remembered denials, which bounds their memory
)

// denials remembers denied requests until their retry time. It uses the monotonic clock, so a step
// of the wall clock has no effect.
type denials struct {
	mu    sync.Mutex
	until map[string]denial
}

type denial struct {
	decision Decision
	at       time.Time
	until    time.Time
}

// get returns the remembered denial of a request. The retry times in it are as of now.
func (m *denials) get(body []byte, now time.Time) (Decision, bool) {
	m.mu.Lock()
	kept, ok := m.until[string(body)]
	if ok && !now.Before(kept.until) {
		delete(m.until, string(body))
		ok = false
	}
	m.mu.Unlock()
	if !ok {
		return Decision{}, false
	}
	d := kept.decision
	left := max(1, *d.RetryAfterMS-now.Sub(kept.at).Milliseconds())
	d.RetryAfterMS, d.Remembered = &left, true
	return d, true
}

// put remembers a denial because of a limit or a block. Other denials have no retry time. It does
// not remember a denial by a concurrency limit, because a holder can release its places at any time.
func (m *denials) put(body []byte, d Decision, now time.Time) {
	after, ok := d.RetryAfter()
	if !ok || after <= 0 || d.Reason != ReasonOverLimit && d.Reason != ReasonBlocked {
		return
	}
	if slices.ContainsFunc(d.Limits, func(l LimitState) bool { return l.Algorithm == "concurrency" && !l.Allowed }) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.until == nil {
		m.until = map[string]denial{}
	}
	if len(m.until) >= denialsLimit {
		for key, kept := range m.until {
			if !now.Before(kept.until) {
				delete(m.until, key)
			}
		}
		if len(m.until) >= denialsLimit {
			return
		}
	}
	m.until[string(body)] = denial{decision: d, at: now, until: now.Add(min(after, rememberMax))}
}
