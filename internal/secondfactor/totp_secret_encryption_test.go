package secondfactor_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/secondfactor"
)

func TestSeal(t *testing.T) {
	t.Parallel()
	sealer := func(key string) secondfactor.Sealer {
		t.Helper()
		s, err := secondfactor.NewSealer(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	plain, one, two := sealer(""), sealer(strings.Repeat("a", 32)), sealer(strings.Repeat("b", 32))
	sealed := one.Seal("SECRET", "ann")
	if bytes.Contains(sealed, []byte("SECRET")) {
		t.Errorf("%q", sealed)
	}
	for what, open := range map[string]func() (string, error){
		"its key":            func() (string, error) { return one.Open(sealed, "ann") },
		"from before a key":  func() (string, error) { return one.Open(plain.Seal("SECRET", "ann"), "ann") },
		"without encryption": func() (string, error) { return plain.Open(plain.Seal("SECRET", "ann"), "ann") },
	} {
		if got, err := open(); got != "SECRET" || err != nil {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	for what, open := range map[string]func() (string, error){
		"another key":    func() (string, error) { return two.Open(sealed, "ann") },
		"no key":         func() (string, error) { return plain.Open(sealed, "ann") },
		"another person": func() (string, error) { return one.Open(sealed, "bob") },
		"a cut one":      func() (string, error) { return one.Open(sealed[:5], "ann") },
		"nothing":        func() (string, error) { return one.Open(nil, "ann") },
	} {
		if got, err := open(); got != "" || !errors.Is(err, secondfactor.ErrSealed) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := secondfactor.NewSealer("short"); err == nil {
		t.Error("a short key was accepted")
	}

	// Rotation of the key.
	both := two.WithOld(one)
	if got, err := both.Open(sealed, "ann"); got != "SECRET" || err != nil {
		t.Errorf("with the old key: %q, %v", got, err)
	}
	if _, err := both.Open(sealed, "bob"); !errors.Is(err, secondfactor.ErrSealed) {
		t.Errorf("another person with the old key: %v", err)
	}
	for what, stored := range map[string][]byte{"of the old key": sealed, "unencrypted": plain.Seal("SECRET", "ann")} {
		again, err := both.Reseal(stored, "ann")
		if got, opened := two.Open(again, "ann"); got != "SECRET" || err != nil || opened != nil || again[0] == stored[0] && what == "unencrypted" {
			t.Errorf("%s: %q, %v, %v", what, got, err, opened)
		}
		if same, err := both.Reseal(again, "ann"); !bytes.Equal(same, again) || err != nil {
			t.Errorf("%s: sealed again: %v", what, err)
		}
	}
	if same, err := two.Reseal(sealed, "ann"); !errors.Is(err, secondfactor.ErrSealed) || !bytes.Equal(same, sealed) {
		t.Errorf("without the old key: %v", err)
	}
	if same, err := plain.Reseal(plain.Seal("SECRET", "ann"), "ann"); err != nil || !bytes.Equal(same, plain.Seal("SECRET", "ann")) {
		t.Errorf("without a key: %v", err)
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for address, allowed := range map[string]bool{
		"https://limits.example.com": true, "http://localhost:8080": true, "http://127.0.0.1:8080": false,
		"https://192.0.2.1": false, "http://limits.example.com": false, "": false,
	} {
		if err := secondfactor.Origin(address); (err == nil) != allowed || err != nil && !errors.Is(err, secondfactor.ErrOrigin) {
			t.Errorf("%q: %v", address, err)
		}
	}
}
