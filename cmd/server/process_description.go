package main

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate/headgate/web/admin"
)

// How long denials are stored, and the maximum number of stored denials.
const (
	refusalsKept = 24 * time.Hour
	mostRefusals = 100_000
)

// process returns a description of this process for the system page.
func (n *node) process(s *serveCommand) admin.Process {
	database := "SQLite"
	if s.production() {
		database = "PostgreSQL"
	}
	return admin.Process{
		Node: n.id, Database: database, Limiter: n.limiterKind, GoVersion: runtime.Version(), Build: buildOf(),
		Schema: func(ctx context.Context) (current, latest int, err error) {
			m, err := n.store.MigrationStatus(ctx)
			return m.Version, m.Latest, err
		},
		Retention: []admin.Retention{
			{What: "Counts by the minute", Kept: time.Duration(s.RetentionMinutes), Setting: settingName("retention-minutes")},
			{What: "Counts by the hour", Kept: time.Duration(s.RetentionHours), Setting: settingName("retention-hours")},
			{What: "Counts by the day", Kept: time.Duration(s.RetentionDays), Setting: settingName("retention-days")},
			{What: "Denials with their explanation", Kept: refusalsKept, Most: mostRefusals},
			{What: "Sample of allowed requests", Kept: refusalsKept, Most: mostRefusals},
			{What: "Lines of the audit log"},
		},
	}
}

// buildOf returns the Git commit from which the binary was built, or "" if it is unknown.
func buildOf() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	var revision, suffix string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				suffix = ", with changes"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return strings.TrimSpace(revision[:min(12, len(revision))]) + suffix
}
