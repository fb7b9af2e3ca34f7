//go:build !quick

package main

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/servertest"
)

// Three nodes, Postgres and Redis have a monthly quota whose unused units are rolled over. Redis loses its
// data twice: after the month ended, and within the next month. Then exactly what was left passes.
func TestRolloverAfterRedisLostItsData(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	f := startCluster(t, 3, map[string]string{"HEADGATE_REDIS_URL": server.URL()})
	f.publish("plan", `[{"slug": "monthly", "on_failure": "closed", "limits": [
		{"algorithm": "fixed_window", "quota": 240, "window": "month", "max_rollover": 120}]}]`)
	f.tenant("acme", "plan")
	if n := f.charge(48); n != 144 {
		t.Fatalf("%d checks passed, want 144", n)
	}
	f.flushed()

	// The state of the counter becomes that of the month before, which left 96 units.
	db, err := sql.Open("pgx", f.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	utc, err := enforcement.NewCalendar("UTC", 1)
	if err != nil {
		t.Fatal(err)
	}
	month, _ := utc.Window(enforcement.Month, time.Monday, time.Now())
	before, _ := utc.Window(enforcement.Month, time.Monday, month.Add(-1))
	moved, err := db.ExecContext(t.Context(), "UPDATE durable_states SET t = $1, b = $2 WHERE a = 144", before.UnixMicro(), month.Sub(before).Microseconds())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := moved.RowsAffected(); n != 1 || err != nil {
		t.Fatalf("%d states were moved, %v", n, err)
	}
	lose := func() {
		t.Helper()
		if err := redisClient(t, server.URL()).FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	lose()
	shown := func(remaining int64) {
		t.Helper()
		var a answer
		eventually(t, "the counter is restored", func() bool {
			a = call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check", `{"tenant": "acme", "cost": 0}`)
			return a.status == 200
		})
		var d struct {
			Limits []struct {
				Quota, Remaining int64
				RolledOver       int64 `json:"rolled_over"`
			}
		}
		if a.into(t, &d); d.Limits[0].Quota != 336 || d.Limits[0].RolledOver != 96 || d.Limits[0].Remaining != remaining {
			t.Errorf("%s", a.body)
		}
		if policy := a.header.Get("RateLimit-Policy"); !strings.HasPrefix(policy, `"monthly";q=336;`) {
			t.Errorf("RateLimit-Policy: %s", policy)
		}
	}
	shown(336)
	if n := f.charge(72); n != 216 {
		t.Fatalf("%d checks passed after the first loss, want 216 of 336", n)
	}
	f.flushed()
	lose()
	shown(336 - 216)
	if n := f.charge(80); n != 336-216 {
		t.Errorf("%d checks passed after the second loss, want %d: what was left of the quota of 240 and the 96 rolled over", n, 336-216)
	}
}
