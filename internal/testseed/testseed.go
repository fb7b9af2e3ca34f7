// Package testseed sets the seed of random tests. The seed is the value of HEADGATE_FUZZ_SEED,
// which make test sets, or a random number.
//
// A package with tests of pgregory.net/rapid has this TestMain:
//
//	func TestMain(m *testing.M) { testseed.Main(m) }
package testseed

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

const variable = "HEADGATE_FUZZ_SEED"

// Main runs the tests with the seed, and exits.
func Main(m *testing.M) {
	SetRapid()
	os.Exit(m.Run())
}

// SetRapid sets the flag -rapid.seed to the seed. It is for a TestMain that cannot call Main. A
// flag on the command line overrides the seed.
func SetRapid() {
	seed := os.Getenv(variable)
	if seed == "" || flag.Lookup("rapid.seed") == nil {
		return
	}
	if err := flag.Set("rapid.seed", seed); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", variable, err)
		os.Exit(2)
	}
}

// Seed returns the seed and writes it to the test's log.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	}
	t.Logf("to repeat this test: %s=%d", variable, seed)
	return seed
}
