//go:build !quick

package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/servertest"
)

// Nodes on hosts with different time zones charge the same window and return the same end of
// it.
func TestNodesOfTwoTimeZones(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_REDIS_URL": servertest.Redis(t), "HEADGATE_REDIS_PREFIX": fmt.Sprintf("hg-%x:", rand.Uint64()), "TZ": "Pacific/Kiritimati",
	}
	f := startCluster(t, 1, settings)
	settings["HEADGATE_DATABASE_URL"], settings["HEADGATE_LIMITER_TIMEOUT"], settings["TZ"] = f.databaseURL, "30s", "America/Los_Angeles"
	f.nodes = append(f.nodes, launch(t, settings).serving())
	f.publish("plan", `[{"slug": "daily", "limits": [{"algorithm": "fixed_window", "quota": 1000000, "window": "day"}]}]`)
	f.tenant("acme", "plan")
	tenant := call(t, bootstrap, "GET", f.nodes[0].origin+"/v1/tenants/acme", "").want(t, 200)
	call(t, bootstrap, "PATCH", f.nodes[0].origin+"/v1/tenants/acme", `{"time_zone": "Asia/Kathmandu"}`, "If-Match", tenant.header.Get("ETag"),
		"Content-Type", "application/merge-patch+json").want(t, 200)
	calendar, err := enforcement.NewCalendar("Asia/Kathmandu", 1)
	if err != nil {
		t.Fatal(err)
	}
	type state struct {
		Limits []struct {
			Remaining    int64 `json:"remaining"`
			ResetAfterMS int64 `json:"reset_after_ms"`
		} `json:"limits"`
	}
	// ends reports whether the window of an answer ends with the day in the zone of the tenant. The clock passes on between the
	// answer and the comparison.
	ends := func(s state, before time.Time) bool {
		_, from := calendar.Window(enforcement.Day, time.Monday, before)
		_, until := calendar.Window(enforcement.Day, time.Monday, time.Now())
		reset := time.Duration(s.Limits[0].ResetAfterMS-1) * time.Millisecond // it is rounded up
		return !before.Add(reset).After(until) && !time.Now().Add(reset+time.Millisecond).Before(from)
	}
	for i, node := range f.nodes {
		eventually(t, fmt.Sprintf("node %d knows the zone", i), func() bool {
			var s state
			before := time.Now()
			call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme"}`).want(t, 200).into(t, &s)
			return ends(s, before)
		})
	}
	before := time.Now()
	var answers [2]state
	for i, node := range f.nodes {
		a := call(t, bootstrap, "POST", node.origin+"/v1/check", `{"tenant": "acme"}`).want(t, 200)
		a.into(t, &answers[i])
		if !ends(answers[i], before) || strings.Contains(a.body, `"degraded":true`) {
			t.Errorf("node %d: %s", i, a.body)
		}
	}
	_, midnight := calendar.Window(enforcement.Day, time.Monday, before)
	if time.Now().Before(midnight) && answers[1].Limits[0].Remaining != answers[0].Limits[0].Remaining-1 {
		t.Errorf("the nodes count in two windows: %+v", answers)
	}
}
