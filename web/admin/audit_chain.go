package admin

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A chain is what this node last found of the log's chain.
type chain struct {
	walking sync.Mutex // held while somebody verifies
	mu      sync.Mutex
	at      time.Time
	verdict audit.Verdict
}

func (k *chain) view(now time.Time) *views.ChainVerdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at.IsZero() {
		return nil
	}
	v := &views.ChainVerdict{Good: k.verdict.Broken == nil, At: views.NewMoment(k.at, now)}
	if !v.Good {
		v.Text = "The log is not as it was written: " + k.verdict.Broken.Error() + "."
		return v
	}
	if v.Text = "The chain is unbroken up to line " + strconv.FormatInt(k.verdict.Lines, 10) + "."; k.verdict.Lines == 0 {
		v.Text = "The chain has no line yet."
	}
	if n := k.verdict.Head.Outside; n > 0 {
		v.Text += " " + strconv.FormatInt(n, 10) + " older lines are from before the chain, and only counted."
	}
	return v
}

// verifyAudit is POST /audit/verify: it walks the whole chain and tells what it
// found. One walk at a time on each node.
func (w *pages) verifyAudit(c echo.Context) error {
	if _, err := web.Form(c); err != nil {
		return err
	}
	verifier, ok := w.cfg.Audit.(audit.Verifier)
	if !ok {
		return problem.New(problem.Unavailable, "this log cannot be verified here")
	}
	if !w.chain.walking.TryLock() {
		return problem.New(problem.Unavailable, "this node is verifying the chain already: look again in a moment")
	}
	defer w.chain.walking.Unlock()
	ctx, cancel := context.WithTimeoutCause(c.Request().Context(), verifyWithin, web.ErrSlow)
	defer cancel()
	verdict, err := verifier.VerifyAudit(ctx)
	if err != nil {
		return err
	}
	w.chain.mu.Lock()
	w.chain.at, w.chain.verdict = w.Now(), verdict
	w.chain.mu.Unlock()
	return w.renderAudit(c, http.StatusOK)
}
