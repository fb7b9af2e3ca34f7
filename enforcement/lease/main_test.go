package lease_test

import (
	"testing"

	"github.com/headgate/headgate/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
