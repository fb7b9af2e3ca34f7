package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/retry"
)

// batchStates is the maximum number of states that one transaction writes.
const batchStates = 500

// longestPause is the longest time between two attempts to write.
const longestPause = 5 * time.Second

var errNotOpen = errors.New("journal: the database is not open yet")

// Run writes states until ctx ends. Then it writes the states that are left, within
// StopTimeout.
func (j *Journal) Run(ctx context.Context) error {
	ticker := time.NewTicker(j.config.Interval)
	defer ticker.Stop()
	retries := retry.Backoff{First: j.config.Interval, Longest: longestPause}
	for next := time.Now(); ; {
		select {
		case <-ctx.Done():
			return j.finish(ctx)
		case now := <-ticker.C:
			j.memory.sweep(now)
			if now.Before(next) {
				continue
			}
			if err := j.flush(ctx, false); err != nil {
				next = time.Now().Add(retries.Next())
			} else {
				retries.Reset()
			}
		}
	}
}

// finish writes the states that are left when Run ends. It repeats failed writes for at
// most StopTimeout.
func (j *Journal) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), j.config.StopTimeout)
	defer cancel()
	for {
		err := j.Flush(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			n, _ := j.memory.waiting()
			j.config.Logger.Error("states of durable limits could not be written before the shutdown", "states", n, "error", err)
			return nil
		}
		_ = retry.Wait(ctx, retry.Jitter(100*time.Millisecond))
	}
}

// Flush implements [enforcement.Journal]. It waits for the limiter calls that are running,
// and writes all states that this node has received.
func (j *Journal) Flush(ctx context.Context) error { return j.flush(ctx, true) }

func (j *Journal) flush(ctx context.Context, all bool) error {
	j.sending.Lock()
	defer j.sending.Unlock()
	if all && j.shared {
		j.calls.await(ctx)
	}
	list := j.memory.due(time.Now(), j.config.Longest, all)
	// The list is sorted, so that two nodes lock rows in the same order.
	slices.SortFunc(list, func(a, b enforcement.Stored) int { return compareKeys(&a.Key, &b.Key) })
	var err error
	done := 0
	for done < len(list) && err == nil {
		batch := list[done:min(done+batchStates, len(list))]
		if err = j.write(ctx, batch); err == nil {
			done += len(batch)
		}
	}
	j.memory.wrote(list[:done], time.Now())
	j.memory.unsure(list[done:])
	j.conclude(done, err)
	return err
}

func (j *Journal) write(ctx context.Context, batch []enforcement.Stored) error {
	store := j.store.Load()
	if store == nil {
		return errNotOpen
	}
	ctx, cancel := context.WithTimeout(ctx, j.config.Timeout)
	defer cancel()
	return (*store).WriteJournal(ctx, batch)
}

func compareKeys(a, b *enforcement.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Cell, b.Cell), bytes.Compare(a.Partition[:], b.Partition[:]))
}

// conclude updates the status after a flush. done is the number of written states.
func (j *Journal) conclude(done int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := &j.status
	s.Written += int64(done)
	switch failing := !s.FailingSince.IsZero(); {
	case err == nil && failing:
		j.config.Logger.Info("states of durable limits are written again", "failing_since", s.FailingSince)
		s.FailingSince = time.Time{}
	case err != nil && !failing:
		j.config.Logger.Warn("states of durable limits cannot be written; they wait in memory", "error", err)
		s.FailingSince = time.Now()
	}
	s.Failure = err
}

// Status returns the current state of the Journal.
func (j *Journal) Status() Status {
	j.mu.Lock()
	s := j.status
	j.mu.Unlock()
	var oldest time.Time
	if s.Waiting, oldest = j.memory.waiting(); !oldest.IsZero() {
		s.WaitingFor = max(0, time.Since(oldest))
	}
	s.NotKept = j.memory.notKept.Load()
	return s
}
