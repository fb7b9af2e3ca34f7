// Package migrations embeds the steps of the database schema.
//
// Both folders have the same numbers and names, up and down, and make the same
// tables; what differs is how an engine writes it. A step is small, is never
// edited after a release, and the release before must still run on it. Neither
// engine's files have BEGIN or COMMIT: each file is one transaction already.
//
// The package refuses to know who runs the steps: store does.
package migrations

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
)

// Postgres has the steps for Postgres in the folder "postgres".
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite has the steps for SQLite in the folder "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Latest is the number of the newest step: the schema that this program knows.
func Latest() int {
	latest := 0
	// The folder is embedded, so that reading it cannot fail.
	entries, _ := fs.ReadDir(SQLite, "sqlite")
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if n, err := strconv.Atoi(number); err == nil {
			latest = max(latest, n)
		}
	}
	return latest
}
