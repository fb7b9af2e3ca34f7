package enforcement_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
)

// Every reason has a sentence that names its subject.
func TestBecause(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC).UnixMicro()
	w := func(cell uint32) []enforcement.RuleLimit { return []enforcement.RuleLimit{window(cell, 5)} }
	plain := subject(t,
		enforcement.RuleSpec{Policy: "off", Mode: enforcement.PolicyOff, Limits: w(1)},
		enforcement.RuleSpec{Policy: "post", Methods: []string{"POST", "PUT"}, Limits: w(2)},
		enforcement.RuleSpec{Policy: "path", Path: "/b/*", Limits: w(3)},
		enforcement.RuleSpec{Policy: "beta", Attributes: map[string]string{"beta": "yes"}, Limits: w(4)},
		enforcement.RuleSpec{Policy: "skips", CountBy: []string{"app"}, Missing: enforcement.MissingSkip, Limits: w(5)},
		enforcement.RuleSpec{Policy: "denies", CountBy: []string{"app"}, Missing: enforcement.MissingDeny, Limits: w(6)},
		enforcement.RuleSpec{Policy: "old", Limits: w(7)},
		enforcement.RuleSpec{Policy: "new", Replaces: []string{"old"}, Limits: w(8)},
		enforcement.RuleSpec{Policy: "shadow", Mode: enforcement.PolicyShadow, Limits: w(9)},
		enforcement.RuleSpec{Policy: "blocked", Limits: w(10)})
	s := addExceptions(t, plain, enforcement.ExceptionSpec{
		Blocks:    []enforcement.Block{{ID: "b", Policy: "blocked", Until: until}},
		Overrides: []enforcement.Override{{ID: "o", Policy: "shadow", Factor: 2000, Revision: 3, Until: until}},
	})
	now := until - 1
	told := func(s *enforcement.Subject, c enforcement.Check, reason enforcement.Reason) []string {
		var list []string
		for _, p := range enforcement.ExplainPolicies(s, &c, now) {
			list = append(list, p.Rule.Policy+": "+p.Because(&enforcement.Decision{Check: &c, Reason: reason}))
		}
		return list
	}
	want := []string{
		"off: the policy is off",
		"post: the policy is for POST, PUT, and the request has the method GET",
		"path: the policy is for /b/*, and the request has no path",
		"beta: the policy is for requests with one value of the attribute beta, and this one has another or none",
		"skips: the policy counts by the attribute app, which was not sent, and skips such requests",
		"denies: the policy counts by the attribute app, which was not sent, and denies such requests",
		"old: the policy new applies, and replaces this one",
		"new: the policy applies",
		"shadow: the policy applies, in shadow: it counts the requests that it would deny, and denies none, with other numbers until 2026-03-01T12:00:00.001Z",
		"blocked: the policy applies, and its key is blocked until 2026-03-01T12:00:00.001Z",
	}
	if diff := cmp.Diff(want, told(s, enforcement.Check{Method: "GET"}, enforcement.ReasonBlocked)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for reason, who := range map[enforcement.Reason]string{
		enforcement.ReasonAllowedByList:   "the allow list",
		enforcement.ReasonDeniedByList:    "the deny list",
		enforcement.ReasonTenantSuspended: "the tenant's status",
	} {
		suspended := *plain
		suspended.Suspended = true
		got := told(&suspended, enforcement.Check{Path: "/a"}, reason)
		if want := "new: " + who + " decided before any policy"; got[7] != want {
			t.Errorf("%s: %s, want %s", reason, got[7], want)
		}
		if want := "path: the policy is for /b/*, and the request has the path /a"; got[2] != want {
			t.Errorf("%s, want %s", got[2], want)
		}
	}
}
