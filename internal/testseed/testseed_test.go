package testseed

import (
	"flag"
	"testing"
)

func TestSeed(t *testing.T) {
	t.Setenv(variable, "17")
	if seed := Seed(t); seed != 17 {
		t.Errorf("seed %d", seed)
	}
	t.Setenv(variable, "")
	if first, second := Seed(t), Seed(t); first == second {
		t.Error("two random seeds are the same")
	}
}

func TestSetRapid(t *testing.T) {
	value := flag.Uint64("rapid.seed", 0, "as rapid defines it")
	t.Setenv(variable, "18")
	if SetRapid(); *value != 18 {
		t.Errorf("the flag is %d", *value)
	}
	t.Setenv(variable, "")
	if SetRapid(); *value != 18 {
		t.Errorf("the flag is %d", *value)
	}
}
