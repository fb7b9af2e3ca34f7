//go:build !quick

package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/store"
)

// says fails the test unless an answer has all words.
func says(t *testing.T, a answer, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(a.body, w) {
			t.Errorf("%d: the answer does not say %q:\n%s", a.status, w, a.body)
		}
	}
}

// Every running node reports that Redis lost counts: in readiness, in metrics, and on the
// System page. The audit log gets one entry for each loss, also if no node was running.
func TestLostCountsAreTold(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": server.URL(), "HEADGATE_REDIS_PREFIX": "hg:",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
	}
	f := startCluster(t, 2, settings)
	raw := redisClient(t, server.URL())
	lines := func() int {
		page := call(t, bootstrap, "GET", f.nodes[0].origin+"/v1/audit?action=redis.lost", "").want(t, 200).body
		return strings.Count(page, `"redis.lost"`)
	}
	database, err := store.Open(t.Context(), store.Config{URL: settings["HEADGATE_DATABASE_URL"], Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	noted := func() bool {
		epoch, err := database.Setting(t.Context(), epochSetting)
		return err == nil && epoch != "" && strings.HasPrefix(raw.Get(t.Context(), "hg:{00}m").Val(), epoch+" ")
	}
	eventually(t, "the nodes have noted what Redis has", noted)
	for _, node := range f.nodes {
		says(t, call(t, "", "GET", node.origin+"/metrics", ""), "headgate_redis_data_lost_total 0\n")
	}
	if n := lines(); n != 0 {
		t.Fatalf("%d audit lines before the loss", n)
	}

	began := time.Now()
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, node := range f.nodes {
		eventually(t, "the node notices the loss", func() bool {
			return strings.Contains(call(t, "", "GET", node.origin+"/metrics", "").body, "headgate_redis_data_lost_total 1\n")
		})
		t.Logf("noticed after at most %s", time.Since(began).Round(time.Millisecond))
		says(t, call(t, "", "GET", node.origin+"/readyz?verbose", ""), "Redis lost counts, noticed at 20", "was emptied (FLUSHALL, FLUSHDB)")
	}
	eventually(t, "the audit log has a line", func() bool { return lines() == 1 })
	b := newBrowser(t, f.nodes[1].origin)
	b.signIn("ann@example.com", ownerPassword).want(t, 303)
	eventually(t, "the System page tells of both nodes", func() bool {
		page := b.get("/system").want(t, 200).body
		return strings.Contains(page, "2 with problems") && strings.Count(page, "Redis lost counts ") >= 2
	})
	says(t, b.get("/audit"), "found that counts are missing in")

	for _, node := range f.nodes {
		if err := node.command.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-node.ended
	}
	if err := raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	f = startCluster(t, 2, settings)
	// The first node that notices the change of the epoch stores the new one. Then the other
	// node notices nothing.
	eventually(t, "a node finds other data than was noted", func() bool {
		return slices.ContainsFunc(f.nodes, func(node *process) bool {
			return strings.Contains(call(t, "", "GET", node.origin+"/metrics", "").body, "headgate_redis_data_lost_total 1\n")
		})
	})
	eventually(t, "the nodes have noted what Redis has now", noted)
	if n := lines(); n != 2 {
		t.Errorf("%d audit lines, want one for each loss", n)
	}
}
