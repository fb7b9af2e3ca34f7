package export

import (
	"context"
	"strconv"
	"time"

	"github.com/headgate/headgate/internal/audit"
)

// AuditColumns are the columns of the file that Audit returns.
var AuditColumns = []Column{
	{"line", "The ID of the entry."},
	{"seq", "Its place in the hash chain. Empty for older entries, and for members and keys of a tenant."},
	{"at", "The time, in UTC with microseconds."},
	{"revision", "The revision of the change. Empty for members and keys of a tenant."},
	{
		"actor_kind",
		"user, operator_key, tenant_key, command or system. Members and keys of a tenant see operator for all people and keys of the operator.",
	},
	{"actor_id", "The ID of the person or key."},
	{"actor_name", "The name or email address."},
	{"address", "The address that sent the request."},
	{"request_id", "The ID of the request."},
	{"tenant_id", "The tenant that the change belongs to, if any."},
	{"action", "The action, as object.verb."},
	{"object", "The ID of the changed object."},
	{"object_name", "Its slug or name."},
	{"before", "The state before the change, as JSON."},
	{"after", "The state after the change, as JSON."},
	{"hash", "The hash of the entry, in hexadecimal."},
}

// Audit returns a file with the entries of the audit log that match a filter, newest first. The
// name of the file contains the time now. view removes the parts of entries that the reader of the
// file must not see.
func Audit(ctx context.Context, log audit.Store, f audit.Filter, view *audit.TenantView, now time.Time) File {
	f.Limit = pageRows
	fetch := func(last *audit.Entry) ([]audit.Entry, error) {
		if last != nil {
			f.After = last.ID
		}
		return log.AuditEntries(ctx, f)
	}
	show := func(e audit.Entry) ([]string, error) {
		e, err := view.Show(ctx, e)
		return auditFields(e), err
	}
	return File{Name: "headgate-audit-" + now.UTC().Format("20060102-150405"), Columns: AuditColumns, Rows: pages(fetch, show)}
}

func auditFields(e audit.Entry) []string {
	seq, revision, hash := "", "", ""
	if e.Seq > 0 {
		seq, hash = strconv.FormatInt(e.Seq, 10), e.Hash.String()
	}
	if e.Revision > 0 {
		revision = strconv.FormatInt(e.Revision, 10)
	}
	return []string{
		e.ID, seq, e.At.UTC().Format("2006-01-02T15:04:05.000Z"), revision, e.Actor.Kind, e.Actor.ID, e.Actor.Name,
		e.Origin.Address, e.Origin.RequestID, e.TenantID, e.Action, e.Object, e.ObjectName, string(e.Before), string(e.After), hash,
	}
}
