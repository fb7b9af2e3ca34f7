package enforcement

import (
	"context"
)

// Explain says what a check would be answered now, and why.
func (e *Engine) Explain(ctx context.Context, s *Subject, c *Check, x *Explanation) {
	peek := *c
	peek.Mode = Peek
	now := e.now().UnixMicro()
	e.Decide(ctx, s, &peek, &x.Decision)
	x.PassesAt = Never
	switch d := &x.Decision; {
	case d.Allowed || d.RetryAfter != Never:
		x.PassesAt = max(d.At, now) + d.RetryAfter*1000
	}
	x.Policies = explainPolicies(x.Policies[:0], s, &peek, now)
}
