// Package limitertest is the suite that every enforcement.Limiter passes.
//
// Run runs tests of single promises: window edges, refunds, forced charges, clocks that
// step back, changes of numbers, requests with several limits, isolation of keys, and
// concurrency. Sequences plays random steps. It compares every result with a model, which
// implements the definitions with rational numbers and plain lists, and with the
// reference functions of enforcement.
//
// The test of a Limiter calls both with a Factory:
//
//	limitertest.Run(t, func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
//		return limitertest.Fixture{Limiter: inprocess.New(inprocess.Config{Now: c.Now})}
//	})
//
// Every test uses a random tenant and random partitions, so that many tests may share
// one server.
package limitertest
