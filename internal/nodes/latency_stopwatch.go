package nodes

import (
	"sync"
	"time"

	"github.com/headgate/headgate/internal/latency"
)

// A Stopwatch records the latencies of calls. It is safe for concurrent use. The zero value is ready to use.
type Stopwatch struct {
	mu  sync.Mutex
	lap latency.Histogram
}

// Observe records the duration of a call. It rounds the duration up to microseconds, the unit
// of reports. A negative duration counts as 0.
func (s *Stopwatch) Observe(took time.Duration) {
	took = (max(took, 0) + time.Microsecond - 1).Truncate(time.Microsecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lap.Add(took)
}

// Lap returns the latencies that were recorded since the previous call of Lap.
func (s *Stopwatch) Lap() Latency {
	s.mu.Lock()
	lap := s.lap
	s.lap = latency.Histogram{}
	s.mu.Unlock()
	return Latency{P50: lap.Quantile(0.5), P99: lap.Quantile(0.99), Calls: lap.Count()}
}
