package journal

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/retry"
)

// calls counts the running calls of the limiter. Flush uses it to wait until the states of all
// earlier calls are in memory. The zero value is ready to use.
type calls struct {
	generation atomic.Uint32
	running    [2]atomic.Int64 // number of running calls; the index is their generation (when they began) modulo 2
}

func (c *calls) enter() (generation uint32) {
	for {
		g := c.generation.Load() % 2
		c.running[g].Add(1)
		if c.generation.Load()%2 == g {
			return g
		}
		c.running[g].Add(-1) // await began a new generation in between
	}
}

func (c *calls) leave(generation uint32) { c.running[generation].Add(-1) }

// mostAwaited is the maximum time that await waits. A call to a hung server may run longer.
// Such a call gets no answer and therefore no state, so await need not wait for it.
const mostAwaited = 2 * time.Second

// await waits for the end of all calls that were running when await was called. Only one goroutine
// may call it at a time.
func (c *calls) await(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, mostAwaited)
	defer cancel()
	earlier := c.generation.Add(1) - 1
	for c.running[earlier%2].Load() > 0 && retry.Wait(ctx, time.Millisecond) == nil {
	}
}
