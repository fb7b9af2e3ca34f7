package redis

import (
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// SetClock sets the time that l assumes for its server to t, now.
func SetClock(l *Limiter, t time.Time) {
	l.clocks.one.Store(&reading{sent: time.Now(), server: t.UnixMicro()})
}

// Waiting returns how many requests wait for a call on a single server, and how
// many calls are in flight.
func Waiting(l *Limiter) (requests, calls int) {
	ln := &l.lanes.one
	ln.mu.Lock()
	defer ln.mu.Unlock()
	for m := ln.queue.head; m != nil; m = m.after {
		requests += m.count - m.next
	}
	return requests, ln.inFlight
}

// TakeOnly makes l decide every call by take.lua.
func TakeOnly(l *Limiter) { l.scripts.only = true }

// ScriptCalls is how many calls were made for each script.
func ScriptCalls(l *Limiter) (take, batch, single int64) {
	return l.scripts.take.calls.Load(), l.scripts.batch.calls.Load(), l.scripts.single.calls.Load()
}

// WithoutKeyBound makes l count no keys, and makes its scripts ask for no bound.
func WithoutKeyBound(l *Limiter) {
	l.live.off = true
	for _, s := range []*script{&l.scripts.single, &l.scripts.batch} {
		s.body = newBody(strings.ReplaceAll(s.text, scriptText("full.lua"), ""))
	}
}

// WeightOf is the most bytes that a key of a meter can take.
func WeightOf(m *enforcement.Meter) int64 { return weightOf(m) }

// ClusterURL returns a URL of several addresses in the form of go-redis, which names all
// but the first one in the query.
func ClusterURL(text string) string {
	o, err := parseURL(text)
	if err != nil {
		panic(err)
	}
	url := "redis://" + o.Username + ":" + o.Password + "@" + o.Addrs[0] + "?"
	for _, address := range o.Addrs[1:] {
		url += "&addr=" + address
	}
	return url
}

// KeyName returns the name of a counter.
func KeyName(prefix, home string, key *enforcement.Key) string {
	return string(appendKey(nil, prefix, home, key))
}

// ReadPlain decodes the value of a plain cell; "" is the zero State.
func ReadPlain(value string) (s enforcement.State) {
	if value != "" {
		readState([]byte(value), &s)
	}
	return s
}
