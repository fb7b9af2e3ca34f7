package enforcement

import (
	"context"
	"errors"
)

// A Caller is the client of a check. The HTTP server that owns the client's connection
// implements it.
type Caller interface {
	// Left reports whether the client has closed its connection. It only looks if this
	// process was unable to notice that before, for example because it stalled. With
	// wait, it may wait some milliseconds for the result.
	Left(ctx context.Context, wait bool) bool
}

// ErrLeft is the error of a request whose caller left before the request was sent.
// Outcome.Err wraps it.
var ErrLeft = errors.New("the caller has left")

type callerKey struct{}

// WithCaller returns a context with the caller of a check. A check with this context is
// not charged after the caller has left.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// HasLeft returns an error if the caller of ctx has left, or if ctx has ended. No
// client would receive the decision, so nothing must be charged.
func HasLeft(ctx context.Context, wait bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c, ok := ctx.Value(callerKey{}).(Caller); ok && c.Left(ctx, wait) {
		return ErrLeft
	}
	return nil
}
