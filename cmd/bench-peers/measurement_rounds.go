package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

// A contender is a service or a library that is compared with others. run measures it once, in
// one round.
type contender struct {
	name string
	run  func(context.Context) (slot, error)
}

// rotate measures the contenders in rounds. In each round, it measures every contender once. The
// first round is a warm-up, and rotate discards its results. Each round starts with a different
// contender, so that no contender always runs after the same one.
func (b *bench) rotate(ctx context.Context, title string, contenders []contender) (map[string]series, error) {
	progress("%s: %d contenders, %d rounds", title, len(contenders), b.rounds+1)
	found := map[string]series{}
	for round := range b.rounds + 1 {
		for i := range contenders {
			c := contenders[(i+round)%len(contenders)]
			runtime.GC() // collect the garbage now, so that a collection does not slow down the next contender
			s, err := c.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", title, c.name, err)
			}
			if ctx.Err() != nil {
				return nil, errors.New("interrupted")
			}
			if round > 0 {
				found[c.name] = append(found[c.name], s)
			}
		}
	}
	return found, nil
}
