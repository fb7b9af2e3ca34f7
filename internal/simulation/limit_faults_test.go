package simulation

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/internal/store"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// Plans, overrides, scenarios and stored plans reject the same limits, with the
// same message at the same field.
func TestBadLimitsHaveOneFault(t *testing.T) {
	t.Parallel()
	o := newOverrides(t)
	const window, bucket, log = enforcement.FixedWindow, enforcement.TokenBucket, enforcement.SlidingWindowLog
	for _, c := range []struct {
		limit    enforcement.Limit // without a name: l1
		override enforcement.OverrideLimit
		field    string
	}{
		{enforcement.Limit{Algorithm: window, Quota: -2, Window: time.Minute}, numbers(-2, keep, 0), "quota"},
		{enforcement.Limit{Algorithm: window, Quota: enforcement.MaxQuota + 1, Window: time.Minute}, numbers(enforcement.MaxQuota+1, keep, 0), "quota"},
		{enforcement.Limit{Algorithm: log, Quota: enforcement.MaxLog + 1, Window: time.Minute}, numbers(enforcement.MaxLog+1, keep, 0), "quota"},
		{enforcement.Limit{Algorithm: window, Quota: 1, Window: time.Minute, Burst: 5}, numbers(keep, 5, 0), "burst"},
		{enforcement.Limit{Algorithm: bucket, Quota: 1, Window: time.Minute, Burst: -2}, numbers(keep, -2, 0), "burst"},
		{enforcement.Limit{Algorithm: bucket, Quota: 1, Window: time.Minute, Burst: enforcement.MaxQuota + 1}, numbers(keep, enforcement.MaxQuota+1, 0), "burst"},
		{enforcement.Limit{Algorithm: window, Quota: 1, Window: enforcement.MaxWindow + time.Millisecond}, numbers(keep, keep, enforcement.MaxWindow+time.Millisecond), "window"},
		{enforcement.Limit{Algorithm: window, Quota: 1, Window: 300*24*time.Hour + time.Millisecond}, numbers(keep, keep, 300*24*time.Hour+time.Millisecond), "window"},
	} {
		c.limit.Name = "l1"
		want := c.limit.Validate()
		if len(want) != 1 || want[0].Pointer != "/"+c.field {
			t.Fatalf("%+v has the faults %v, want one of %s", c.limit, want, c.field)
		}
		same := func(way, message string) {
			t.Helper()
			if message != want[0].Message {
				t.Errorf("%+v by %s: %q, want %q", c.limit, way, message, want[0].Message)
			}
		}
		document := plans.New(plans.Content{Name: "p", Policies: []plans.Policy{{Slug: "p", Limits: []enforcement.Limit{c.limit}}}})
		same("plan", messageAt(document.Validate(), "/policies/0/limits/0/"+c.field))
		same("override", messageAt(o.create(t, c.limit.Algorithm, c.override), "/limits/0/"+c.field))
		same("scenario", scenarioFault(t, c.limit, c.field))
		same("snapshot row", rowFault(t, document, "/0/limits/0/"+c.field))
	}
}

const keep = enforcement.Keep

func numbers(quota, burst int64, window time.Duration) enforcement.OverrideLimit {
	return enforcement.OverrideLimit{Name: "l1", Quota: quota, Burst: burst, Window: window}
}

// messageAt returns the message of the only fault, if it is at the pointer.
func messageAt(err error, pointer string) string {
	var p *problem.Problem
	if !errors.As(err, &p) || len(p.Fields) != 1 || p.Fields[0].Pointer != pointer {
		return "not one fault at " + pointer
	}
	return p.Fields[0].Message
}

// scenarioFault returns the message at a field of the first limit of a scenario.
func scenarioFault(t *testing.T, l enforcement.Limit, field string) string {
	t.Helper()
	limit := map[string]any{"algorithm": l.Algorithm.String(), "quota": l.Quota, "window_ms": l.Window.Milliseconds()}
	if l.Burst != 0 {
		limit["burst"] = l.Burst
	}
	text, err := json.Marshal(map[string]any{"id": "x", "limits": []any{limit}, "steps": []any{}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = RunOne(t.Context(), text, Config{NewLimiter: inProcess})
	if field == "window" {
		field = "window_ms"
	}
	return messageAt(err, "/limits/0/"+field)
}

// rowFault returns the message with which a snapshot rejects a stored plan.
func rowFault(t *testing.T, d plans.Document, pointer string) string {
	t.Helper()
	s, _ := snapshot.Compile(nil, snapshot.Changes{Revision: 1, Plans: []snapshot.PublishedPlan{
		{ID: "1", Slug: "p", Version: 1, Revision: 1, Document: d},
	}}, snapshot.Options{})
	if s.ProblemCount() != 1 {
		return "not one problem"
	}
	_, message, _ := strings.Cut(s.Problems()[0].Err.Error(), pointer+" ")
	return message
}

// overrides creates overrides of a tenant whose plan has one policy for each
// algorithm.
type overrides struct{ *exceptions.Service }

func newOverrides(t *testing.T) overrides {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	st, err := store.Open(ctx, store.Config{URL: "sqlite://" + filepath.Join(t.TempDir(), "h.db"), Timeout: time.Minute})
	must(err)
	t.Cleanup(func() { _ = st.Close() })
	must(st.Migrate(ctx))
	p, customers := plans.NewService(st, plans.Config{}), tenants.NewService(st, tenants.Config{})
	content := plans.Content{Name: "Pro"}
	for a := enforcement.FixedWindow; a <= enforcement.GCRA; a++ {
		content.Policies = append(content.Policies, plans.Policy{
			Slug: policyOf(a), Limits: []enforcement.Limit{{Algorithm: a, Quota: 1, Window: time.Minute}},
		})
	}
	made, err := p.CreatePlan(ctx, "pro", plans.New(content))
	must(err)
	_, _, err = p.Publish(ctx, "pro", plans.Publish{IfRevision: made.DraftRevision})
	must(err)
	_, err = customers.CreateTenant(ctx, "acme", tenants.Document{Name: "Acme", Plan: "pro"})
	must(err)
	return overrides{exceptions.NewService(st, customers, p, exceptions.Config{})}
}

func policyOf(a enforcement.Algorithm) string { return strings.ReplaceAll(a.String(), "_", "-") }

// create returns the error of an override of the policy of an algorithm.
func (o overrides) create(t *testing.T, a enforcement.Algorithm, l enforcement.OverrideLimit) error {
	t.Helper()
	_, err := o.CreateOverride(t.Context(), "acme", exceptions.NewOverride{
		Policy: policyOf(a), Reason: "r", Limits: []enforcement.OverrideLimit{l},
	})
	return err
}
