package oidc

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/headgate/headgate/internal/problem"
)

// Keys rotate: a new key is loaded when a JWT names it, but not more often than every 10 s, and a removed key ends
// within 5 minutes. If the address fails, the keys that are loaded stay.
func TestVerifierFollowsTheKeys(t *testing.T) {
	t.Parallel()
	now, status, loads := time.Unix(1_800_000_000, 0), http.StatusInternalServerError, 0
	private := map[string]ed25519.PrivateKey{}
	var served jose.JSONWebKeySet
	serve := func(ids ...string) {
		served = jose.JSONWebKeySet{}
		for _, id := range ids {
			served.Keys = append(served.Keys, jose.JSONWebKey{Key: private[id].Public(), KeyID: id})
		}
	}
	for _, id := range []string{"a", "b"} {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		private[id] = key
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		loads++
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(served)
	}))
	defer server.Close()
	v, err := NewVerifier(JWTConfig{Keys: server.URL, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	const claims = `{"sub":"u1","exp":4102444800}`
	verify := func(id string) error {
		t.Helper()
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: private[id]}, (&jose.SignerOptions{}).WithHeader("kid", id))
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign([]byte(claims))
		if err != nil {
			t.Fatal(err)
		}
		token, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		payload, err := v.Verify(t.Context(), token)
		if err == nil && string(payload) != claims {
			t.Errorf("payload %s", payload)
		}
		return err
	}
	serve("a")
	if err := verify("a"); !problem.Is(err, problem.Unavailable) {
		t.Errorf("without keys: %v", err)
	}
	status, now = http.StatusOK, now.Add(keysBetween)
	if err := verify("a"); err != nil {
		t.Errorf("after the address came back: %v", err)
	}
	serve("a", "b")
	if err := verify("b"); err == nil || problem.Is(err, problem.Unavailable) {
		t.Errorf("a new key, too soon: %v", err)
	}
	now = now.Add(keysBetween)
	if err := verify("b"); err != nil || loads != 3 {
		t.Errorf("a new key: %v after %d loads", err, loads)
	}
	serve("b")
	status, now = http.StatusInternalServerError, now.Add(keysAge)
	if err := verify("a"); err != nil || loads != 4 {
		t.Errorf("the address fails: %v after %d loads", err, loads)
	}
	status, now = http.StatusOK, now.Add(keysBetween)
	if err := verify("a"); err == nil {
		t.Error("a removed key is still valid")
	}
}
