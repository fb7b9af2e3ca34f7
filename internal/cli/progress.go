package cli

import (
	"context"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/headgate/headgate/internal/retry"
)

const (
	// progressDelay is the time after which the progress of an operation is shown.
	progressDelay = time.Second
	// progressInterval is the time between two updates of the shown progress.
	progressInterval = 200 * time.Millisecond
)

// Progress shows the progress of an operation on a terminal, after the operation has taken longer
// than a second. done returns how many of the total units are finished; it is called in another
// goroutine. If total is 0, Progress shows only the elapsed time, and done may be nil. At the end,
// the caller must call stop, which clears the line.
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
		// The error is ignored, because the operation must continue even if the terminal cannot
		// show its progress.
		_ = bar.Set64(min(done(), total))
		if total < 0 {
			_ = bar.RenderBlank()
		}
		if retry.Wait(ctx, progressInterval) != nil {
			return
		}
	}
}
