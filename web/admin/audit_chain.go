package admin

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// A chain has the result of the last verification, on this node, of the audit log's hash chain.
type chain struct {
	walking sync.Mutex // locked during a verification
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
		v.Text = "The log was changed after it was written: " + k.verdict.Broken.Error() + "."
		return v
	}
	if v.Text = "The chain is intact up to entry " + strconv.FormatInt(k.verdict.Lines, 10) + "."; k.verdict.Lines == 0 {
		v.Text = "The chain has no entry yet."
	}
	if n := k.verdict.Head.Outside; n > 0 {
		v.Text += " " + strconv.FormatInt(n, 10) + " older entries are not part of the chain."
	}
	return v
}

// verifyAudit serves POST /audit/verify, which verifies the whole hash chain. Each node runs at
// most one verification at a time.
func (w *pages) verifyAudit(c echo.Context, _ url.Values) error {
	verifier, ok := w.cfg.Audit.(audit.Verifier)
	if !ok {
		return problem.New(problem.Unavailable, "this database cannot verify the audit log")
	}
	if !w.chain.walking.TryLock() {
		return problem.New(problem.Unavailable, "this node is already verifying the chain: try again in a moment")
	}
	defer w.chain.walking.Unlock()
	ctx, cancel := context.WithTimeoutCause(c.Request().Context(), verifyTimeout, web.ErrSlow)
	defer cancel()
	verdict, err := verifier.VerifyAudit(ctx, audit.Verification{})
	if err != nil {
		return err
	}
	w.chain.mu.Lock()
	w.chain.at, w.chain.verdict = w.Now(), verdict
	w.chain.mu.Unlock()
	return w.renderAudit(c, http.StatusOK)
}
