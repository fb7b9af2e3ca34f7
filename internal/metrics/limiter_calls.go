package metrics

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/enforcement"
)

// nVerdicts is the length of arrays that have one element for each verdict of the limiter: the
// result for one request. Index 0 is for an unknown verdict.
const nVerdicts = int(enforcement.Full) + 1

type limiterCounts struct {
	seconds  histogram // buckets in microseconds, sum in nanoseconds
	verdicts [nVerdicts]atomic.Uint64
}

// InstrumentLimiter returns a Limiter that calls l. It counts the duration of each call and the
// verdict of each request.
func (r *Recorder) InstrumentLimiter(l enforcement.Limiter) enforcement.Limiter {
	return &instrumented{next: l, counts: &r.limiter}
}

// InstrumentLocal is like InstrumentLimiter, for the node's own limiter. This limiter decides while
// the shared limiter is unavailable. SketchLatency counts its calls as local. The metric
// headgate_limiter_seconds does not include them.
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
