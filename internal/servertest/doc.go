// Package servertest gives tests real Postgres and Redis servers.
//
// Most tests share one server of each kind and use separate data on it:
//
//	url := servertest.Postgres(t) // an empty database, dropped after the test
//	url := migrated.Clone(t)      // a copy of a database that was prepared once
//	url := servertest.Redis(t)    // the shared server: use a random key prefix
//
// Tests of faults start a private server, which they may stop, pause and restart
// ([StartPostgres], [StartRedis]), or put a [Proxy] in front of a server. A Proxy can
// drop replies and reset connections.
//
// The shared servers are those of HEADGATE_TEST_DATABASE_URL and
// HEADGATE_TEST_REDIS_URL. The command servertest/cmd/with-servers, which make
// test uses, sets both. If a variable is not set, as in a plain go test ./internal/store,
// the first test that needs a server starts one for this test process, and TestMain of
// the package stops it:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// If a program is missing, the test fails and the error names the package to install. No
// test is skipped.
//
// # Tests without servers
//
// Tests that need a server are in files named *_server_test.go that begin with
//
//	//go:build !quick
//
// so that make test-quick, which runs go test -tags quick ./..., runs all other tests
// without a server. A TestMain as above may be in any file, because it starts no server.
package servertest
