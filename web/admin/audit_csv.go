package admin

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// auditCSVPage is how many lines are read at once.
const auditCSVPage = 500

// auditColumns are those of the file, in their order.
var auditColumns = []views.AuditFact{
	{Name: "line", Text: "The line's id."},
	{Name: "seq", Text: "Its place in the chain, empty before the chain began, and for a tenant's people."},
	{Name: "at", Text: "When, in UTC with microseconds."},
	{Name: "revision", Text: "The revision of the change; empty for a tenant's people."},
	{
		Name: "actor_kind",
		Text: "user, operator_key, tenant_key, command or system; operator for whoever of the operator, for a tenant's people.",
	},
	{Name: "actor_id", Text: "The id of the person or key."},
	{Name: "actor_name", Text: "Its name or e-mail address."},
	{Name: "address", Text: "Where the request came from."},
	{Name: "request_id", Text: "The id of the request."},
	{Name: "tenant_id", Text: "The tenant that the change belongs to, if one."},
	{Name: "action", Text: "What was done, as object.verb."},
	{Name: "object", Text: "The id of what was changed."},
	{Name: "object_name", Text: "Its slug or name."},
	{Name: "before", Text: "What it was, as JSON."},
	{Name: "after", Text: "What it is since, as JSON."},
	{Name: "hash", Text: "The hash that closes the line, in hexadecimal."},
}

// auditCSV streams the lines that the filters leave, page by page. When it fails
// on its way the connection is broken off, so that half a file is not taken for a
// whole one.
func (w *pages) auditCSV(c echo.Context) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		return w.renderAudit(c, http.StatusUnprocessableEntity)
	}
	filter := r.filter
	filter.Limit = auditCSVPage
	ctx := c.Request().Context()
	lines, err := w.cfg.Audit.AuditEntries(ctx, filter)
	if err != nil {
		return err // nothing is sent yet
	}
	h := c.Response().Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="headgate-audit-`+w.Now().UTC().Format("20060102-150405")+`.csv"`)
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	control := http.NewResponseController(c.Response())
	out := csv.NewWriter(c.Response())
	head := make([]string, len(auditColumns))
	for i, column := range auditColumns {
		head[i] = column.Name
	}
	left := w.cfg.AuditLines
	err = out.Write(head)
	for err == nil && len(lines) > 0 {
		_ = control.SetWriteDeadline(time.Now().Add(web.WriteWithin)) // not every writer has deadlines
		for _, e := range lines {
			if left == 0 {
				err = out.Write([]string{fmt.Sprintf("cut off: this file has at most %d lines, and there are more; choose a shorter time",
					w.cfg.AuditLines)})
				lines = nil
				break
			}
			left--
			if err = r.writeCSV(c, out, e); err != nil {
				break
			}
		}
		out.Flush()
		if err == nil {
			err = out.Error()
		}
		if err != nil || len(lines) < auditCSVPage {
			break
		}
		_ = control.Flush()
		filter.After = lines[len(lines)-1].ID
		lines, err = w.cfg.Audit.AuditEntries(ctx, filter)
	}
	out.Flush()
	if err != nil {
		w.Log().Warn("a file of the audit log was broken off", "request_id", web.RequestID(c), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// inert keeps a spreadsheet from taking a field for a formula.
func inert(field string) string {
	if field != "" && strings.ContainsRune("=+-@\t\r", rune(field[0])) {
		return "'" + field
	}
	return field
}
