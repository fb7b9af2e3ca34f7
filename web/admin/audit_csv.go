package admin

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/web"
	"github.com/headgate/headgate/web/views"
)

// auditCSVPage is how many entries are read at once.
const auditCSVPage = 500

// auditColumns are the columns of the file.
var auditColumns = []views.AuditFact{
	{Name: "line", Text: "The ID of the entry."},
	{Name: "seq", Text: "Its place in the hash chain. Empty for older entries, and for members of a tenant."},
	{Name: "at", Text: "The time, in UTC with microseconds."},
	{Name: "revision", Text: "The revision of the change. Empty for members of a tenant."},
	{
		Name: "actor_kind",
		Text: "user, operator_key, tenant_key, command or system. Members of a tenant see operator for all people and keys of the operator.",
	},
	{Name: "actor_id", Text: "The ID of the person or key."},
	{Name: "actor_name", Text: "The name or email address."},
	{Name: "address", Text: "The address that sent the request."},
	{Name: "request_id", Text: "The ID of the request."},
	{Name: "tenant_id", Text: "The tenant that the change belongs to, if any."},
	{Name: "action", Text: "The action, as object.verb."},
	{Name: "object", Text: "The ID of the changed object."},
	{Name: "object_name", Text: "Its slug or name."},
	{Name: "before", Text: "The state before the change, as JSON."},
	{Name: "after", Text: "The state after the change, as JSON."},
	{Name: "hash", Text: "The hash of the entry, in hexadecimal."},
}

// auditCSV streams the entries that match the filters as CSV. If an error occurs, it aborts the
// connection, so that the client does not take a part of the file for the complete file.
func (w *pages) auditCSV(c echo.Context) error {
	r, err := w.auditOf(c)
	if err != nil {
		return err
	}
	if len(r.faults) > 0 {
		return w.renderAudit(c, http.StatusUnprocessableEntity)
	}
	r.filter.Limit = auditCSVPage
	lines, err := w.cfg.Audit.AuditEntries(c.Request().Context(), r.filter)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="headgate-audit-`+w.Now().UTC().Format("20060102-150405")+`.csv"`)
	c.Response().WriteHeader(http.StatusOK)
	if c.Request().Method == http.MethodHead {
		return nil
	}
	if err := r.writeCSV(c, lines); err != nil {
		w.Log().Warn("download of the audit log aborted", "request_id", web.RequestID(c), "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// writeCSV writes lines and all entries after them.
func (r *auditReading) writeCSV(c echo.Context, lines []audit.Entry) error {
	ctx, control, out := c.Request().Context(), http.NewResponseController(c.Response()), csv.NewWriter(c.Response())
	head := make([]string, len(auditColumns))
	for i, column := range auditColumns {
		head[i] = column.Name
	}
	_ = out.Write(head) // Error returns the error
	for left := r.w.cfg.AuditLines; len(lines) > 0; {
		_ = control.SetWriteDeadline(time.Now().Add(web.WriteWithin)) // not every writer has deadlines
		for _, e := range lines {
			if left--; left < 0 {
				_ = out.Write([]string{fmt.Sprintf("cut off: this file has at most %d lines, and there are more; choose a shorter time",
					r.w.cfg.AuditLines)})
				out.Flush()
				return out.Error()
			}
			fields, err := r.csvFields(ctx, e)
			if err != nil {
				return err
			}
			_ = out.Write(fields)
		}
		out.Flush()
		if err := out.Error(); err != nil || len(lines) < auditCSVPage {
			return err
		}
		_ = control.Flush()
		var err error
		r.filter.After = lines[len(lines)-1].ID
		if lines, err = r.w.cfg.Audit.AuditEntries(ctx, r.filter); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func (r *auditReading) csvFields(ctx context.Context, e audit.Entry) ([]string, error) {
	e, err := r.shown(ctx, e)
	seq, revision, hash := "", "", ""
	if e.Seq > 0 {
		seq, hash = strconv.FormatInt(e.Seq, 10), e.Hash.String()
	}
	if !r.member {
		revision = strconv.FormatInt(e.Revision, 10)
	}
	fields := []string{
		e.ID, seq, e.At.UTC().Format("2006-01-02T15:04:05.000000Z"), revision, e.Actor.Kind, e.Actor.ID, e.Actor.Name,
		e.Origin.Address, e.Origin.RequestID, e.TenantID, e.Action, e.Object, e.ObjectName, string(e.Before), string(e.After), hash,
	}
	for i := range fields {
		fields[i] = web.CSVText(fields[i])
	}
	return fields, err
}
