package main

import (
	"testing"
	"time"
)

// The node tries to connect to the database at least once a second for as long as the
// database is unavailable, so that it is ready within 2 s after the database.
func TestDatabaseRetriesStayShort(t *testing.T) {
	t.Parallel()
	retries := databaseRetries()
	for i := range 50 {
		if pause := retries.Next(); pause < 250*time.Millisecond || pause > time.Second {
			t.Errorf("pause %d: %v", i, pause)
		}
	}
}
