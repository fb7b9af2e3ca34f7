package enforcement

import (
	"context"
	"errors"
)

// A Caller is the client of a check, as the server of its connection knows it.
type Caller interface {
	// Left reports whether the client may have left while this process could not
	// notice, and has left. With wait it may wait some milliseconds to find out.
	Left(ctx context.Context, wait bool) bool
}

// ErrLeft is wrapped in Outcome.Err of a request whose caller left before the
// request was sent.
var ErrLeft = errors.New("the caller has left")

type callerKey struct{}

// WithCaller returns a context whose checks are not decided once the caller left.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// HasLeft returns an error if the caller of ctx has left, or ctx has ended: the
// answer would reach no client, so nothing must be charged.
func HasLeft(ctx context.Context, wait bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c, ok := ctx.Value(callerKey{}).(Caller); ok && c.Left(ctx, wait) {
		return ErrLeft
	}
	return nil
}
