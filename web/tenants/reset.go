package tenants

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// ---- reset

func (w *pages) resetView(c echo.Context, p plans.Policy, q url.Values) views.BoundForm {
	t := web.TenantOf(c)
	v := w.boundForm(c, p, q, "")
	v.Title, v.Lead = "Reset a key",
		"The counters of this key are as if it had never been used. What was counted for charts stays. This cannot be undone."
	v.Action, v.Back, v.PickURL = web.TenantURL(t, "/reset"), web.KeyURL(t, p.Slug, web.KeyFromForm(q, p)), web.TenantURL(t, "/reset")
	v.Reason, v.Button, v.Bad = reasonInput(q, true), "Reset the counters", true
	return v
}

func (w *pages) resetForm(c echo.Context) error {
	list, err := w.Policies(c)
	if err != nil {
		return err
	}
	p, known := web.PolicyBySlug(list, c.QueryParam("policy"))
	if !known {
		return w.pickPolicy(c, list, "Reset a key", "Counters belong to one policy: choose it first.", "")
	}
	return w.showBound(c, http.StatusOK, "", w.resetView(c, p, c.QueryParams()))
}

func (w *pages) resetKey(c echo.Context) error {
	f, p, known, err := w.policyForm(c, "reason")
	if err != nil {
		return err
	}
	if !known {
		return errNoPolicy
	}
	t := web.TenantOf(c)
	key := web.KeyFromForm(f, p)
	err = w.cfg.Usage.Reset(c.Request().Context(), t.ID, p.Slug, key, strings.TrimSpace(f.Get("reason")))
	if err == nil {
		return c.Redirect(http.StatusSeeOther, web.AppendQuery(web.KeyURL(t, p.Slug, key), url.Values{"done": {"key-reset"}}))
	}
	v := w.resetView(c, p, f)
	list, status, err := boundPlaces(&v).Report(err)
	if err != nil {
		return err
	}
	v.Faults = list
	return w.showBound(c, status, "", v)
}
