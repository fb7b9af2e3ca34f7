package cli

import (
	"context"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/headgate/headgate/internal/retry"
)

const (
	// progressDelay is how long work takes before its progress is shown.
	progressDelay = time.Second
	// progressInterval is the time between two updates.
	progressInterval = 200 * time.Millisecond
)

// Progress shows on a terminal how far work is, if it takes longer than a second. done returns how
// many of total units are done, and is called from another goroutine. If total is 0, only the
// elapsed time is shown, and done may be nil. The caller must call stop, which clears the line.
func (t Terminal) Progress(what string, total int64, done func() int64) (stop func()) {
	if !t.Interactive {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		t.showProgress(ctx, what, total, done)
	}()
	return func() {
		cancel()
		<-stopped
	}
}

func (t Terminal) showProgress(ctx context.Context, what string, total int64, done func() int64) {
	options := []progressbar.Option{
		progressbar.OptionSetDescription(what), progressbar.OptionSetWriter(t.Stderr), progressbar.OptionSetWidth(24),
		progressbar.OptionSetElapsedTime(true), progressbar.OptionSetSpinnerChangeInterval(0),
	}
	if total <= 0 {
		total, done = -1, func() int64 { return 0 }
	} else {
		options = append(options, progressbar.OptionSetPredictTime(true))
	}
	bar := progressbar.NewOptions64(total, options...)
	bar.StartWithoutRender()
	if retry.Wait(ctx, progressDelay) != nil {
		return
	}
	defer func() { _ = bar.Clear() }()
	for {
		// An error of the terminal must not end the work.
		_ = bar.Set64(min(done(), total))
		if total < 0 {
			_ = bar.RenderBlank()
		}
		if retry.Wait(ctx, progressInterval) != nil {
			return
		}
	}
}
