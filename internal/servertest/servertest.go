package servertest

import (
	"os"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/servertest/process"
	"github.com/headgate/headgate/internal/testseed"
)

// shared contains the servers that this test process has started, because no environment variable
// names a server. It also contains the templates of this process.
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

// shutdown does the same work as [Main] after the tests. It is for a TestMain that has further
// work. No test may be running.
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

// postgresURL returns the URL of the shared Postgres server. The first call may start the server.
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

// Redis returns the URL of the shared Redis server. Other tests use the server at the same time, so
// a test must give each key a random prefix and must not flush the database.
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
