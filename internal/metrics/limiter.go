package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// nVerdicts counts those of enforcement, which begin at 1; place 0 has what is
// none of them.
const nVerdicts = int(enforcement.Unknown) + 1

type limiterCounts struct {
	seconds  histogram // in microseconds, its sum in nanoseconds
	verdicts [nVerdicts]atomic.Uint64
}

// InstrumentLimiter gives a Limiter that does what l does, and counts how long
// each call takes and how its requests end: the limiter that an Engine asks.
func (r *Recorder) InstrumentLimiter(l enforcement.Limiter) enforcement.Limiter {
	return &instrumented{next: l, counts: &r.limiter}
}

// InstrumentLocal does the same for the limiter that stands in while the shared
// one is away. It counts apart: in SketchLatency as local, and not in
// headgate_limiter_seconds.
func (r *Recorder) InstrumentLocal(l enforcement.Limiter) enforcement.Limiter {
	return &instrumented{next: l, counts: &r.standIn}
}

type instrumented struct {
	next   enforcement.Limiter
	counts *limiterCounts
}

func (i *instrumented) Take(ctx context.Context, requests []enforcement.Request, outcomes []enforcement.Outcome) {
	began := time.Now()
	i.next.Take(ctx, requests, outcomes)
	i.counts.seconds.observeTime(time.Since(began))
	for n := range outcomes {
		v := int(outcomes[n].Verdict)
		if v >= nVerdicts {
			v = 0
		}
		i.counts.verdicts[v].Add(1)
	}
}
