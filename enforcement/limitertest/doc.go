// Package limitertest is the suite that every enforcement.Limiter passes.
//
// Run plays tables of steps, one for each promise: window edges, refunds,
// forced charges, clocks that step back, numbers that change, several limits
// at once, isolation, concurrency. Sequences plays random steps and compares
// every answer with Model, which is written from the definitions with rational
// numbers and plain lists, and with the reference functions of enforcement.
//
// A package with a Limiter calls both from one test and gives a Factory:
//
//	limitertest.Run(t, func(t *testing.T, c *limitertest.Clock) limitertest.Fixture {
//		return limitertest.Fixture{Limiter: inprocess.New(inprocess.Config{Now: c.Now})}
//	})
//
// Every test uses counters of its own (a random tenant and random partitions),
// so that many may share one server.
package limitertest
