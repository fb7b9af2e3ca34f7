// Package servertest gives tests real Postgres and Redis servers.
//
// Most tests share one server of each kind and keep apart on it:
//
//	url := servertest.Postgres(t) // an empty database, dropped after the test
//	url := migrated.Clone(t)      // a copy of a database that was prepared once
//	url := servertest.Redis(t)    // the shared server: use a random key prefix
//
// Tests of faults start a server of their own, which they may stop, hold and
// start again ([StartPostgres], [StartRedis]), or put a [Proxy] before any
// server, which loses replies and cuts connections when told to.
//
// The shared servers are those of HEADGATE_TEST_DATABASE_URL and
// HEADGATE_TEST_REDIS_URL. The command servertest/cmd/with-servers, which make
// test uses, sets both. When a variable is not set, as in a plain go test
// ./store, the first test that asks starts a server for this test process, and
// the package's TestMain ends it:
//
//	func TestMain(m *testing.M) { servertest.Main(m) }
//
// A missing program fails the test and names the package to install. Nothing
// skips.
//
// # Tests without servers
//
// Tests that need a server stand in files named *_server_test.go that begin with
//
//	//go:build !quick
//
// so that make test-quick, which is go test -tags quick ./..., runs everything
// else without a server. A TestMain as above may stand in any file: it starts
// nothing.
package servertest
