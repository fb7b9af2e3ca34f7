package main

import (
	"testing"
	"time"
)

// However long the database is away, the node tries again at least once a second, so that it
// is ready within 2 s after the database.
func TestDatabaseRetriesStayShort(t *testing.T) {
	t.Parallel()
	retries := databaseRetries()
	for i := range 50 {
		if pause := retries.Next(); pause < 250*time.Millisecond || pause > time.Second {
			t.Errorf("pause %d: %v", i, pause)
		}
	}
}
