package oidc_test

import (
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/oidc"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/servertest"
)

// mostHostile is more than a client may read of an answer, with the buffers of the connection.
const mostHostile = 32 << 20

// A hostile provider ends in an error for the person who signs in, and its answers take a bounded part of the memory.
func TestHostileProviders(t *testing.T) {
	t.Parallel()
	servers := servertest.StartHostileHTTP(t)
	if len(servers) < 20 {
		t.Fatalf("%d servers", len(servers))
	}
	var signing sync.WaitGroup
	for _, h := range servers {
		p, err := oidc.New(oidc.Config{Issuer: h.URL, ClientID: client, ClientSecret: secret, RedirectURL: redirect})
		if err != nil {
			t.Fatal(err)
		}
		v, err := oidc.NewVerifier(oidc.JWTConfig{Keys: h.URL})
		if err != nil {
			t.Fatal(err)
		}
		signing.Go(func() {
			if _, _, err := p.Start(t.Context()); !problem.Is(err, problem.Unavailable) {
				t.Errorf("%s: %v, want Unavailable", h.Name, err)
			}
			if _, err := v.Verify(t.Context(), "eyJhbGciOiJSUzI1NiJ9.e30.x"); err == nil {
				t.Errorf("%s: a JWT is valid", h.Name)
			}
		})
	}
	signing.Wait()
	for _, h := range servers {
		if n := h.Sent(); n > mostHostile {
			t.Errorf("%s: %d bytes of the answer were read", h.Name, n)
		}
	}
}
