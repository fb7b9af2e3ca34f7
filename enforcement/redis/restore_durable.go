package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/retry"
)

const (
	// restoreEvery is the time between two attempts while the counters of a home are lost.
	restoreEvery = 50 * time.Millisecond
	// restoreLock is the time after which the lock of a restoration expires, unless the
	// restoration extends it.
	restoreLock = 5 * time.Second
	// flushesFor is the maximum time for which a restoration waits for the other nodes to flush
	// their states. Each node notices a loss of data by its pulse, within 500 ms.
	flushesFor = 2 * time.Second
	// registeredFor is the lifetime of the key with which a node reports that it has flushed its
	// states.
	registeredFor = 10 * time.Second
	// restoreCells is the maximum number of counters that one call of restore.lua writes.
	restoreCells = 250
)

// KeepRestored restores the durable counters after each loss of data, until ctx ends. Then it
// returns nil. The Limiter needs Config.Durable.
//
// For each home without a marker, the nodes proceed as follows. Each node flushes the states
// that it has received to the journal. One node takes a lock in Redis. It waits for the other
// nodes to flush. It writes the states in the journal to Redis, unless Redis has newer ones.
// Then it sets the marker. If this node fails, its lock expires, and another node begins.
func (l *Limiter) KeepRestored(ctx context.Context, j enforcement.Journal) error {
	l.durable.suspect()
	failing := false
	for ctx.Err() == nil {
		pause := pulseEvery // even without durable checks, a node must notice that the marker is set
		if l.durable.count.Load() > 0 {
			pause = restoreEvery
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-l.durable.noticed:
			l.findLost(ctx)
		case <-timer.C:
		}
		timer.Stop()
		if l.durable.count.Load() == 0 || !l.health.closed.Load() {
			continue
		}
		switch err := l.restoreLost(ctx, j); {
		case err == nil:
			failing = false
		case !failing && ctx.Err() == nil:
			failing = true
			l.log.Error("the durable limits cannot be restored yet; on_failure decides", "error", err)
		}
	}
	return nil
}

// Restored waits until this node has found that no durable counters are lost. It returns at
// once if Redis does not answer, and at the latest when ctx ends.
func (l *Limiter) Restored(ctx context.Context) {
	for l.health.closed.Load() && ctx.Err() == nil {
		if found := l.findLost(ctx); found && l.durable.count.Load() == 0 {
			return
		}
		_ = retry.Wait(ctx, restoreEvery)
	}
}

// findLost checks the markers of all known homes, and records which markers are missing. It
// returns false if Redis did not answer.
func (l *Limiter) findLost(ctx context.Context) bool {
	for _, home := range l.durable.known(l.pulseHomes()) {
		switch marked, err := l.confirm(ctx, home); {
		case err != nil:
			l.durable.suspect()
			return false
		case marked:
			l.durable.regain(home)
		default:
			l.durable.lose(home)
		}
	}
	return true
}

// restoreLost tries once to restore all homes whose durable counters are lost.
func (l *Limiter) restoreLost(ctx context.Context, j enforcement.Journal) error {
	if err := j.Flush(ctx); err != nil {
		return fmt.Errorf("flush the journal: %w", err)
	}
	l.pulse(ctx) // begins the new epoch, which is part of the marker
	restored := 0
	defer func() {
		if restored > 0 { // one line for all homes, of which there can be hundreds
			l.log.Info("redis has the states of durable limits again", "homes", restored)
		}
	}()
	for _, home := range l.durable.known(nil) {
		if !l.durable.isLost(home) {
			continue
		}
		marked, err := l.confirm(ctx, home)
		if err == nil && !marked {
			marked, err = l.restoreHome(ctx, j, home)
		}
		if err != nil {
			return fmt.Errorf("home %s: %w", home, err)
		}
		if marked {
			l.durable.regain(home)
			restored++
		}
	}
	return nil
}

// restoreHome restores the counters of a home if this node gets the lock of this home. If
// another node has the lock, restoreHome registers that this node has flushed its states, and
// returns false.
func (l *Limiter) restoreHome(ctx context.Context, j enforcement.Journal, home string) (done bool, err error) {
	lock, token := l.durableKey(home, lockKey), randomID()
	locked, err := l.probe.SetNX(ctx, lock, token, restoreLock).Result()
	if err != nil {
		return false, err
	}
	if !locked {
		if token, err = l.probe.Get(ctx, lock).Result(); errors.Is(err, redis.Nil) {
			return false, nil // since SetNX, the other node has finished, or its lock has expired
		} else if err != nil {
			return false, err
		}
		return false, l.probe.Set(ctx, l.durableKey(home, flushKey)+l.config.Node, token, registeredFor).Err()
	}
	if err := l.awaitFlushes(ctx, j, home, token); err != nil {
		return false, err
	}
	rows := home
	if !l.clocks.byHome {
		rows = "" // one marker is for the counters of all homes
	}
	err = j.States(ctx, rows, func(states []enforcement.Stored) error {
		for part := range slices.Chunk(states, restoreCells) {
			if err := l.restore(ctx, lock, token, part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	n, err := l.probe.Eval(ctx, markScript.text, []string{lock, l.durableKey(home, markerKey), l.durableKey(home, "m")}, token).Int64()
	return n == 1, err
}

// awaitFlushes waits until all other nodes have registered that they flushed their states. It
// waits for at most flushesFor: a node that crashed does not register, but stays in the list
// of nodes until its last report is too old.
func (l *Limiter) awaitFlushes(ctx context.Context, j enforcement.Journal, home, token string) error {
	nodes, err := j.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("read which nodes run: %w", err)
	}
	var keys []string
	for _, id := range nodes {
		if id != l.config.Node {
			keys = append(keys, l.durableKey(home, flushKey)+id)
		}
	}
	for until := time.Now().Add(flushesFor); len(keys) > 0; {
		values, err := l.probe.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		left := keys[:0]
		for i, v := range values {
			if v != token {
				left = append(left, keys[i])
			}
		}
		if keys = left; len(keys) == 0 || time.Now().After(until) {
			break
		}
		if err := retry.Wait(ctx, restoreEvery/2); err != nil {
			return err
		}
	}
	return nil
}

var errLockLost = errors.New("the lock of the restoration has expired, or Redis lost data again")

// restore writes states to Redis. It does not replace newer states in Redis.
func (l *Limiter) restore(ctx context.Context, lock, token string, states []enforcement.Stored) error {
	keys, args := []string{lock}, []any{token, restoreLock.Milliseconds()}
	for i := range states {
		keys = append(keys, string(appendKey(nil, l.config.Prefix, states[i].Home, &states[i].Key)))
		args = append(args, appendStored(nil, &states[i]))
	}
	switch n, err := l.probe.Eval(ctx, restoreScript.text, keys, args...).Int64(); {
	case err != nil:
		return err
	case n < 0:
		return errLockLost
	}
	return nil
}

// appendStored appends a state in the form that restore.lua reads. It drops a bucket's
// fraction of a unit, because a value with a fraction needs a later expiry; see cell.lua.
func appendStored(b []byte, s *enforcement.Stored) []byte {
	state := s.State
	bucket := s.Algorithm.Bucket()
	if bucket {
		state.B = 0
	}
	b = append(b, boolByte(bucket), statePlain)
	b = appendInt(b, state.Rev, 6)
	b = appendInt(b, state.A, 7)
	b = appendInt(b, state.B, 7)
	b = appendInt(b, state.T, 7)
	return appendInts(b, s.Ends, s.At)
}

// appendInt appends an integer in size bytes. intAt reads this form.
func appendInt(b []byte, n int64, size int) []byte {
	for range size {
		b = append(b, byte(n))
		n >>= 8
	}
	return b
}
