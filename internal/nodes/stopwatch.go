package nodes

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/latency"
)

// A Stopwatch records latencies. It is safe for concurrent use. The zero value is ready.
type Stopwatch struct {
	mu  sync.Mutex
	lap latency.Histogram
}

// Observe adds a call, rounded up to microseconds, which a report holds. A negative time
// counts as 0.
func (s *Stopwatch) Observe(took time.Duration) {
	took = (max(took, 0) + time.Microsecond - 1).Truncate(time.Microsecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lap.Add(took)
}

// Lap returns the latencies since the last Lap.
func (s *Stopwatch) Lap() Latency {
	s.mu.Lock()
	lap := s.lap
	s.lap = latency.Histogram{}
	s.mu.Unlock()
	return Latency{P50: lap.Quantile(0.5), P99: lap.Quantile(0.99), Calls: lap.Count()}
}
