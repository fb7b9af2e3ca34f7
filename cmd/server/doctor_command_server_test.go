//go:build !quick

package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

// Doctor reads the version, the schema, the policy and the clock of both servers.
func TestDoctorOfServers(t *testing.T) {
	t.Parallel()
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": servertest.Redis(t), "HEADGATE_REDIS_PREFIX": "doctor:",
		"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_SNAPSHOT_FILE": t.TempDir() + "/headgate.snapshot",
	}
	found, _ := examine(t, settings)
	expect(t, found, "database", statusWarning, "the schema has version 0 of")
	expect(t, found, "database-clock", statusOK, "differs by less than")
	expect(t, found, "redis", statusOK, "version ")
	expect(t, found, "redis-clock", statusOK, "differs by less than")
	expect(t, found, "snapshot-file", statusOK, "can be written")
	if f := found["redis-memory"]; f.Status == "" {
		t.Error("no finding about maxmemory-policy")
	}
	must(t, settings, "migrate", "up")
	found, _ = examine(t, settings)
	expect(t, found, "database", statusOK, "schema version")
}

// On a cluster, doctor reports the number of servers and the effect of a failed master. If
// the URL of one of the servers does not select cluster mode, that is an error, and a node
// with it does not start.
func TestDoctorOfACluster(t *testing.T) {
	t.Parallel()
	group := servertest.StartCluster(t, 0)
	settings := map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": group.URL(),
		"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_SNAPSHOT_FILE": t.TempDir() + "/headgate.snapshot",
	}
	found, _ := examine(t, settings)
	expect(t, found, "redis", statusOK, "a cluster of 3 masters and 0 replicas")
	expect(t, found, "redis-cluster", statusWarning, "nothing replaces a master that fails")
	settings["HEADGATE_REDIS_URL"] = group.Servers[0].URL()
	found, _ = examine(t, settings)
	expect(t, found, "redis", statusError, "the server is part of a cluster")
	out := launch(t, settings)
	<-out.ended
	if text := out.logs.String(); !strings.Contains(text, "add ?cluster=true to the URL") {
		t.Errorf("a node with the URL of one server of a cluster logs:\n%s", text)
	}
}

// Doctor follows Sentinels to the master.
func TestDoctorOfSentinels(t *testing.T) {
	t.Parallel()
	group := servertest.StartSentinels(t)
	found, _ := examine(t, map[string]string{
		"HEADGATE_DATABASE_URL": servertest.Postgres(t), "HEADGATE_REDIS_URL": group.URL(),
		"HEADGATE_ADDR": "127.0.0.1:0", "HEADGATE_SNAPSHOT_FILE": t.TempDir() + "/headgate.snapshot",
	})
	expect(t, found, "redis", statusOK, "named by Sentinels")
}
