package admin

import (
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

const (
	// auditOnPage is how many lines stand on one page.
	auditOnPage = 50
	// changesOnPage is how many fields of a line a list shows, changesOnLine how
	// many its own page.
	changesOnPage, changesOnLine = 12, 500
	// verifyWithin bounds a walk through the chain.
	verifyWithin = 2 * time.Minute
)

func (w *pages) showAudit(c echo.Context) error {
	return w.renderAudit(c, http.StatusOK)
}

func (w *pages) renderAudit(c echo.Context, status int) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	v, err := r.view(c.Request().Context())
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		status = http.StatusUnprocessableEntity
	}
	p := w.Page(c, "Audit")
	if web.TenantOf(c).ID != "" {
		p = w.TenantPage(c, "Audit")
	}
	return w.Render(c, status, views.AuditPage(p, v))
}
