package web

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/internal/metrics"
)

// What several viewers ask at once is asked once.

const (
	// maxAnswers is how many questions are remembered.
	maxAnswers = 64
	// freshFor is how long an answer is given again although more was counted
	// since: with what flushes and ticks take, a refusal is on the page within 3 s.
	freshFor = 500 * time.Millisecond
	// answerWithin bounds a question that nobody waits for any more.
	answerWithin = 10 * time.Second
)

// An overview is what was counted, with what its page compares it to.
type overview struct {
	metrics.Overview
	before metrics.Latency // of the limiter, in the time before
}

// questions remembers what was asked of Analytics: as long as nothing more was
// counted, and while the minute is the same, an answer holds.
type questions struct {
	mu    sync.Mutex
	calls map[metrics.Query]*call
}

// A call is a question with its answer, which is there when done is closed.
type call struct {
	done   chan struct{}
	began  time.Time
	mark   metrics.Mark
	answer *overview
	err    error
}

// overview gives what the first page shows of a query, whose times are whole
// minutes. The answer is of all who asked: it must not be changed.
func (w *Web) overview(ctx context.Context, q metrics.Query) (*overview, error) {
	mark, err := w.cfg.Analytics.Mark(ctx)
	if err != nil {
		return nil, err
	}
	c, mine := w.questions.call(q, mark, time.Now())
	if mine {
		go func() {
			// Whoever asked first may leave: the others wait for the same answer.
			whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
			defer cancel()
			c.answer, c.err = w.ask(whole, q)
			w.questions.end(q, c)
		}()
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call gives the call that answers a question; mine tells that the caller must
// make it.
func (a *questions) call(q metrics.Query, mark metrics.Mark, now time.Time) (c *call, mine bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.calls[q]; c != nil && (c.mark == mark || now.Sub(c.began) < freshFor) {
		return c, false
	}
	if a.calls == nil {
		a.calls = make(map[metrics.Query]*call)
	}
	c = &call{done: make(chan struct{}), began: now, mark: mark}
	if len(a.calls) >= maxAnswers {
		a.forgetOldest()
	}
	a.calls[q] = c
	return c, true
}

// end makes an answer known. One that failed is not given again.
func (a *questions) end(q metrics.Query, c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.err != nil && a.calls[q] == c {
		delete(a.calls, q)
	}
	close(c.done)
}

func (a *questions) forgetOldest() {
	var oldest metrics.Query
	var at time.Time
	for q, c := range a.calls {
		if at.IsZero() || c.began.Before(at) {
			oldest, at = q, c.began
		}
	}
	delete(a.calls, oldest)
}

// ask asks Analytics: in one call for a tenant or all together, and of one
// policy or route what is kept of these.
func (w *Web) ask(ctx context.Context, q metrics.Query) (*overview, error) {
	o := new(overview)
	before := q
	before.From, before.To = q.From.Add(-q.To.Sub(q.From)), q.From
	a := w.cfg.Analytics
	group, ctx := errgroup.WithContext(ctx)
	if q.Policy == "" && q.Route == "" {
		group.Go(func() (err error) { o.Overview, err = a.Overview(ctx, q); return err })
		if q.Tenant == 0 {
			group.Go(func() (err error) { o.before, err = a.Latency(ctx, before); return err })
		}
		return o, group.Wait()
	}
	group.Go(func() (err error) { o.Traffic, err = a.Traffic(ctx, q); return err })
	group.Go(func() (err error) { o.Before, err = a.Total(ctx, before); return err })
	if q.Route != "" {
		group.Go(func() (err error) { o.Routes, err = a.Routes(ctx, q); return err })
		return o, group.Wait()
	}
	group.Go(func() (err error) { o.Limited, err = a.Keys(ctx, q, metrics.LimitedKeys); return err })
	group.Go(func() (err error) { o.Allowed, err = a.Keys(ctx, q, metrics.AllowedKeys); return err })
	return o, group.Wait()
}
