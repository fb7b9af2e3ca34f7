//go:build !quick

package main

import (
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
