package servertest

import (
	"os"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/servertest/process"
	"github.com/headgate/headgate/internal/testseed"
)

// shared has the servers that this test process started because no variable named one,
// and its templates.
var shared struct {
	mu        sync.Mutex
	postgres  *process.Postgres
	redis     *process.Redis
	templates []string
}

// Main runs the tests with the seed of testseed, stops the servers that [Postgres]
// and [Redis] started, drops the databases of [Template], and exits.
func Main(m *testing.M) {
	testseed.SetRapid()
	code := m.Run()
	shutdown()
	os.Exit(code)
}

// shutdown does what [Main] does after the tests, for a TestMain with other work. No
// test may be running.
func shutdown() {
	dropTemplates()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres != nil {
		shared.postgres.Close()
		shared.postgres = nil
	}
	if shared.redis != nil {
		shared.redis.Close()
		shared.redis = nil
	}
}

// postgresURL returns the URL of the shared Postgres. The first call may start it.
func postgresURL() (string, error) {
	if url := os.Getenv(process.DatabaseVariable); url != "" {
		return url, nil
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.postgres == nil {
		p, err := process.StartPostgres()
		if err != nil {
			return "", err
		}
		shared.postgres = p
	}
	return shared.postgres.URL(), nil
}

// Redis returns the URL of the shared Redis server. Other tests use it at the
// same time: take a random prefix for every key, and flush nothing.
func Redis(t testing.TB) string {
	t.Helper()
	if url := os.Getenv(process.RedisVariable); url != "" {
		return url
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.redis == nil {
		r, err := process.StartRedis()
		if err != nil {
			t.Fatalf("start the shared redis: %v", err)
		}
		shared.redis = r
	}
	return shared.redis.URL()
}
