package lease_test

import (
	"testing"

	"github.com/headgate/headgate/internal/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }
