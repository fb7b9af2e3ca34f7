// Package migrations embeds the SQL files that create and change the database schema.
//
// The two folders contain the same migrations for Postgres and for SQLite, with the same numbers and names, up and down.
// They create the same tables in the SQL of each engine. A migration is small and is never edited after a release. The
// previous release must still work with the new schema. The files contain no BEGIN and COMMIT, because each file already
// runs in one transaction.
//
// The package does not run the migrations; store does.
package migrations

import (
	"embed"
	"io/fs"
	"strconv"
	"strings"
)

// Postgres contains the migrations for Postgres in the folder "postgres".
//
//go:embed postgres/*.sql
var Postgres embed.FS

// SQLite contains the migrations for SQLite in the folder "sqlite".
//
//go:embed sqlite/*.sql
var SQLite embed.FS

// Latest returns the number of the newest migration, which is the schema version that this program needs.
func Latest() int {
	latest := 0
	// The error is ignored, because an embedded folder can always be read.
	entries, _ := fs.ReadDir(SQLite, "sqlite")
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if n, err := strconv.Atoi(number); err == nil {
			latest = max(latest, n)
		}
	}
	return latest
}
