package store_test

import (
	"net/url"
	"testing"

	"github.com/headgate/headgate/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// escape is a path as a DSN writes it.
func escape(path string) string { return (&url.URL{Path: path}).EscapedPath() }
