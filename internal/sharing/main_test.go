package sharing

import (
	"testing"

	"github.com/headgate/headgate/internal/testseed"
)

func TestMain(m *testing.M) { testseed.Main(m) }
