package store

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// Databases of the first version hold documents of form 1.
func TestReadDocumentOfForm1(t *testing.T) {
	t.Parallel()
	got, err := readDocument(`{"form":1,"name":"Pro","policies":[{"slug":"login","methods":["POST"],"path":"/v1/login","attributes":{"tier":"free"},` +
		`"count_by":["ip"],"missing":"deny","mode":"shadow","on_failure":"closed","consistency":"exact",` +
		`"limits":[{"name":"l1","algorithm":"fixed_window","quota":5,"window_ms":90000,"anchor":"clock"},` +
		`{"name":"b","algorithm":"token_bucket","quota":7,"window_ms":1000,"burst":9,"anchor":"first_hit"}]}]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := plans.New(plans.Content{Name: "Pro", Policies: []plans.Policy{{
		Slug:    "login",
		Match:   plans.Match{Methods: []string{"POST"}, Path: "/v1/login", Attributes: map[string]string{"tier": "free"}},
		CountBy: []string{"ip"}, Missing: enforcement.MissingDeny, Mode: enforcement.PolicyShadow, OnFailure: enforcement.OnFailureClosed,
		Limits: []enforcement.Limit{
			{Name: "l1", Algorithm: enforcement.FixedWindow, Quota: 5, Window: 90 * time.Second, Anchor: enforcement.Clock},
			{Name: "b", Algorithm: enforcement.TokenBucket, Quota: 7, Window: time.Second, Burst: 9},
		},
	}}})
	if !got.Equal(want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	text, err := writeDocument(got)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := readDocument(text); err != nil || !again.Equal(want) {
		t.Errorf("written as %s and read as %+v, %v", text, again, err)
	}
}
