package demo

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// BenchmarkFill makes the demo with its week in an empty SQLite file: how long
// somebody waits who tries it. BenchmarkRemove takes it out, rolled up.
func BenchmarkFill(b *testing.B) {
	for b.Loop() {
		h := newHouse(b)
		_, err := h.demo(time.Now(), 7*24, nil).Fill(h.ctx, h.node())
		h.must(err)
	}
}

func BenchmarkRemove(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		h := newHouse(b)
		s := h.demo(time.Now(), 7*24, nil)
		_, err := s.Fill(h.ctx, h.node())
		h.must(err)
		h.must(metrics.NewRoller(h.store, metrics.RollerConfig{}).Turn(h.ctx))
		b.StartTimer()
		_, err = s.Remove(h.ctx)
		h.must(err)
	}
}
