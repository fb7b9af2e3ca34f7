package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/latency"
)

// Config has the settings of a Run.
type Config struct {
	// Dial opens a connection to the server. Required, unless Open is set.
	Dial func(context.Context) (net.Conn, error)
	// Request is the request that all connections send. Required, unless Open is set.
	Request Request
	// Open opens a Caller, for protocols other than HTTP/1.1. Each connection has its own Caller.
	// Default: Callers that use Dial and Request.
	Open func(context.Context) (Caller, error)
	// Checks is the number of checks in each request. Default: 1.
	Checks int
	// Connections is the number of connections. Default: 1.
	Connections int
	// Rate is the total number of requests per second that are due in an open loop. If a request is
	// due while all connections wait for responses, the first connection that gets its response
	// sends the request. Default: 0, which means a closed loop.
	Rate float64
	// Duration is how long requests are sent. Default: 1s.
	Duration time.Duration
}

// A Caller sends requests one after another.
type Caller interface {
	// Call sends a request, waits for the response, and returns the results of its checks.
	Call(ctx context.Context) (Counts, error)
	Close()
}

// A Result has the measurements of a Run.
type Result struct {
	Counts
	// Requests is the number of requests that got a response.
	Requests int64
	// Unsent is the number of requests of an open loop that were due before the end and not
	// sent, because the server was too slow.
	Unsent int64
	// Elapsed is the time from the first request to the last response.
	Elapsed time.Duration
	// Latency contains the latencies of the requests with at least one decided check.
	Latency latency.Histogram
	// UnavailableLatency contains the latencies of other requests: those without a decided check
	// that have at least one check with status 503.
	UnavailableLatency latency.Histogram
	// Statuses contains the number of responses by HTTP status. It is empty with Open.
	Statuses map[int]int64
	// Err is the first error of a connection, or nil.
	Err error
}

const (
	// patience is how long Run waits for the last responses after the end of Duration.
	patience = 30 * time.Second
	// coarse is longer than the largest delay of a timer of the Go runtime. sleepUntil uses such a
	// timer until the time coarse before t, and a sleeper for the rest.
	coarse = 2 * time.Millisecond
)

// Run sends requests until Duration has passed or ctx ends, and then waits for the last
// responses. It returns an error only if it cannot open the connections.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	cfg.Checks, cfg.Connections = max(cfg.Checks, 1), max(cfg.Connections, 1)
	if cfg.Duration <= 0 {
		cfg.Duration = time.Second
	}
	if cfg.Open != nil { // nothing else bounds the time of a Caller
		limited, cancel := context.WithTimeout(ctx, cfg.Duration+patience)
		defer cancel()
		ctx = limited
	}
	r := &run{Config: cfg}
	all := make([]connection, cfg.Connections)
	defer func() {
		for i := range all {
			all[i].close()
			all[i].sleeper.close()
		}
	}()
	for i := range all {
		all[i] = connection{
			run: r, request: cfg.Request.copy(), random: rand.New(rand.NewPCG(rand.Uint64(), uint64(i))),
			result: Result{Statuses: map[int]int64{}},
		}
		if err := errors.Join(all[i].dial(ctx), all[i].sleeper.open()); err != nil {
			return nil, err
		}
	}
	r.began = time.Now()
	r.end = r.began.Add(cfg.Duration)
	var wait sync.WaitGroup
	for i := range all {
		wait.Go(func() { all[i].send(ctx) })
	}
	wait.Wait()
	sum := &Result{Elapsed: time.Since(r.began), Statuses: map[int]int64{}}
	sent := int64(0)
	for i := range all {
		sum.Merge(&all[i].result)
		sent += all[i].sent
	}
	if cfg.Rate > 0 && ctx.Err() == nil {
		sum.Unsent = r.due() - sent
	}
	return sum, nil
}

// Merge adds the measurements in o to r. It does not change Elapsed and Unsent.
func (r *Result) Merge(o *Result) {
	r.Counts.add(o.Counts)
	r.Requests += o.Requests
	r.Latency.Merge(&o.Latency)
	r.UnavailableLatency.Merge(&o.UnavailableLatency)
	for status, n := range o.Statuses {
		r.Statuses[status] += n
	}
	if r.Err == nil {
		r.Err = o.Err
	}
}

// A run contains the state that all connections of one call of Run share.
type run struct {
	Config
	began, end time.Time
	next       atomic.Int64 // number of the next request of an open loop
}

// dueAt returns the time at which the request with the number n of an open loop is due.
func (r *run) dueAt(n int64) time.Time {
	return r.began.Add(time.Duration(float64(n) / r.Rate * float64(time.Second)))
}

// due returns the number of requests of an open loop that are due before the end.
func (r *run) due() int64 {
	n := int64(r.Rate * r.Duration.Seconds())
	for r.dueAt(n).Before(r.end) {
		n++
	}
	return n
}

// A connection sends requests one after another.
type connection struct {
	run     *run
	caller  Caller   // nil if Config.Open is nil, and while the connection is not open
	conn    net.Conn // nil if Config.Open is set, and while the connection is not open
	in      *bufio.Reader
	stop    func() bool // stops watching the context
	request Request
	random  *rand.Rand
	sleeper sleeper
	answer  answer
	sent    int64
	result  Result
}

func (c *connection) dial(ctx context.Context) (err error) {
	if c.run.Open != nil {
		c.caller, err = c.run.Open(ctx)
		return err
	}
	conn, err := c.run.Dial(ctx)
	if err != nil {
		return err
	}
	c.conn = conn
	_ = conn.SetDeadline(time.Now().Add(c.run.Duration + patience))
	c.stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if c.in == nil {
		c.in = bufio.NewReaderSize(nil, 16<<10)
	}
	c.in.Reset(conn)
	return nil
}

func (c *connection) close() {
	if c.caller != nil {
		c.caller.Close()
		c.caller = nil
	}
	if c.conn != nil {
		c.stop()
		_ = c.conn.Close()
		c.conn = nil
	}
}

// send sends requests until the end of the run.
func (c *connection) send(ctx context.Context) {
	for ctx.Err() == nil {
		due := time.Now()
		if c.run.Rate > 0 {
			due = c.run.dueAt(c.run.next.Add(1) - 1)
			if !due.Before(c.run.end) {
				return
			}
			c.sleepUntil(ctx, due)
		}
		if ctx.Err() != nil || !time.Now().Before(c.run.end) {
			return
		}
		c.sent++
		counts, err := c.exchange(ctx)
		if err != nil {
			c.fail(ctx, err)
			continue
		}
		c.result.record(time.Since(due), counts)
		if c.answer.last {
			c.close()
		}
	}
}

// record counts the response to a request.
func (r *Result) record(latency time.Duration, counts Counts) {
	r.Requests++
	r.add(counts)
	switch {
	case counts.Decided() > 0:
		r.Latency.Add(latency)
	case counts.Unavailable > 0:
		r.UnavailableLatency.Add(latency)
	}
}

// sleepUntil returns at the time t, or earlier if ctx ends.
func (c *connection) sleepUntil(ctx context.Context, t time.Time) {
	if far := time.Until(t) - coarse; far > 0 {
		timer := time.NewTimer(far)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
	for near := time.Until(t); near > 0; near = time.Until(t) {
		c.sleeper.sleep(near)
	}
}

// exchange sends one request and reads the response. It opens the connection if it is not open.
func (c *connection) exchange(ctx context.Context) (counts Counts, err error) {
	if c.conn == nil && c.caller == nil {
		if err := c.dial(ctx); err != nil {
			return counts, err
		}
	}
	if c.caller != nil {
		return c.caller.Call(ctx)
	}
	if _, err := c.conn.Write(c.request.next(c.random)); err != nil {
		return counts, err
	}
	if err := c.answer.read(c.in); err != nil {
		return counts, err
	}
	c.result.Statuses[c.answer.status]++
	counts.count(c.answer.status, c.answer.body, c.run.Checks)
	return counts, nil
}

// fail counts a request without a response and closes the connection. Then it waits a moment before
// the next attempt to open the connection. Otherwise a server that rejects connections would get
// too many attempts.
func (c *connection) fail(ctx context.Context, err error) {
	c.close()
	if ctx.Err() != nil {
		return
	}
	c.result.Failed += int64(c.run.Checks)
	if c.result.Err == nil {
		c.result.Err = fmt.Errorf("request %d of a connection: %w", c.sent, err)
	}
	pause := time.NewTimer(100 * time.Millisecond)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}
