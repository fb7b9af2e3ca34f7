package demo

import (
	"testing"
	"time"
)

// BenchmarkFill makes the demo with its week in an empty SQLite file: how long
// the first start of the demo takes.
func BenchmarkFill(b *testing.B) {
	for b.Loop() {
		h := newHouse(b)
		_, err := h.demo(time.Now(), 7*24, nil).Fill(h.ctx, h.node())
		h.must(err)
	}
}
