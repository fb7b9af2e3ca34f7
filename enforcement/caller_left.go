package enforcement

import (
	"context"
	"errors"
)

// A Caller is the client of a check. The HTTP server that owns the client's connection
// implements it.
type Caller interface {
	// Left reports whether the client has closed its connection. It checks the connection only if the
	// process may have missed the close, for example because the process stalled. If wait is true,
	// Left may wait for some milliseconds.
	Left(ctx context.Context, wait bool) bool
}

// ErrLeft is the error for a request that was not sent to the limiter because its caller had closed
// the connection. Outcome.Err wraps it.
var ErrLeft = errors.New("the caller has left")

type callerKey struct{}

// WithCaller returns a context that contains the caller of a check. The engine does not charge a
// check with this context if the caller has closed the connection before.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// HasLeft returns an error if the caller in ctx has closed the connection, or if ctx has ended. In
// both cases no client would receive a decision, so nothing must be charged.
func HasLeft(ctx context.Context, wait bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c, ok := ctx.Value(callerKey{}).(Caller); ok && c.Left(ctx, wait) {
		return ErrLeft
	}
	return nil
}
