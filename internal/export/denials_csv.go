package export

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/metrics"
)

// DenialColumns are the columns of the file that Denials returns.
var DenialColumns = []Column{
	{"decision_id", "The ID of the decision, for GET /v1/explain/{decision}."},
	{"at", "The time, in UTC with milliseconds."},
	{"tenant", "The slug of the tenant."},
	{"plan", "The slug of the plan. Empty without a plan."},
	{"plan_version", "The version of the plan. Empty without a plan."},
	{"route", "The pattern of the most specific policy that matched, or (none)."},
	{"method", "The method of the request."},
	{"path", "The path of the request."},
	{"reason", "The reason of the decision."},
	{"policy", "The policy that denied. Of an allowed request, the one with the smallest part of its quota left."},
	{"limit", "The limit of that policy."},
	{"retry_after_ms", "Milliseconds until a retry can succeed. Empty if waiting does not help."},
	{"cost", "The cost of the check."},
	{"degraded", "true if the shared limiter was unavailable."},
	{"attributes", "The attributes of the check, as JSON."},
	{"redacted", "true if the values of the attributes were not recorded."},
	{"node", "The ID of the node."},
	{"list_entry", "The ID of the list entry that decided."},
	{"block", "The ID of the block that denied."},
	{"allowed", "true if the request was allowed."},
}

// Denials returns a file with the kept denials that match a filter, newest first. The name of the
// file contains the time now.
func Denials(ctx context.Context, from *metrics.Analytics, f metrics.RefusalFilter, now time.Time) File {
	f.Limit = pageRows
	fetch := func(last *metrics.Refusal) ([]metrics.Refusal, error) {
		if last != nil {
			f.Before = last.ID
		}
		return from.Refusals(ctx, f)
	}
	return File{Name: "headgate-denials-" + now.UTC().Format("20060102-150405"), Columns: DenialColumns, Rows: pages(fetch, denialFields)}
}

func denialFields(r metrics.Refusal) ([]string, error) {
	values := make(map[string]string, len(r.Attributes))
	for _, a := range r.Attributes {
		values[a.Name] = a.Value
	}
	attributes, err := json.Marshal(values)
	retry, version := "", ""
	if r.RetryAfterMS != enforcement.Never {
		retry = strconv.FormatInt(r.RetryAfterMS, 10)
	}
	if r.Plan != "" {
		version = strconv.Itoa(r.PlanVersion)
	}
	return []string{
		uuid.UUID(r.ID).String(), r.At.UTC().Format("2006-01-02T15:04:05.000Z"), r.TenantSlug, r.Plan, version, r.Route, r.Method, r.Path,
		string(r.Reason), r.Policy, r.Limit, retry, strconv.FormatInt(r.Cost, 10), strconv.FormatBool(r.Degraded),
		string(attributes), strconv.FormatBool(r.Redacted), r.Node, r.ListEntry, r.Block, strconv.FormatBool(r.Allowed),
	}, err
}
