package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/headgate/headgate/internal/problem"
)

// JWTConfig configures a Verifier.
type JWTConfig struct {
	// Keys is the address of a JSON Web Key Set, or the name of a file with one. Required.
	Keys string
	// Issuer and Audience are the values that the claims iss and aud must have. Default: any.
	Issuer, Audience string
	// HTTPClient loads the keys. Default: a client with a timeout of 3 s.
	HTTPClient *http.Client
	// Now returns the current time. Default: time.Now.
	Now func() time.Time
}

const (
	keysAge     = 5 * time.Minute  // the Verifier loads the keys again after this time, so that removed keys become invalid
	keysBetween = 10 * time.Second // minimum time between two loads; without it, JWTs with unknown key IDs could cause any number of loads
	maxKeys     = 1 << 20          // bytes of a key set
)

// jwtAlgorithms are the accepted algorithms of signatures. All of them use public keys, because
// Headgate has no secret in common with the issuer of a JWT.
var jwtAlgorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.ES256, jose.ES384, jose.ES512, jose.PS256, jose.PS384, jose.PS512, jose.EdDSA,
}

// A Verifier verifies JWTs with the keys of a key set. It loads the key set when the first JWT
// arrives. It loads the set again after keysAge, and when a JWT names an unknown key. A Verifier is
// safe for concurrent use.
type Verifier struct {
	cfg      JWTConfig
	verifier *oidclib.IDTokenVerifier

	mu     sync.Mutex
	keys   *jose.JSONWebKeySet // nil before the first load
	loaded time.Time           // of keys
	tried  time.Time           // time of the last attempt to load the keys, even if it failed
}

// NewVerifier returns a Verifier. It does not load the keys. If cfg.Keys is invalid, the error says
// why.
func NewVerifier(cfg JWTConfig) (*Verifier, error) {
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{Timeout: 3 * time.Second}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	v := &Verifier{cfg: cfg}
	if v.remote() {
		if err := checkURL("address", cfg.Keys); err != nil {
			return nil, err
		}
	} else if _, err := v.load(context.Background()); err != nil {
		return nil, err
	}
	algorithms := make([]string, len(jwtAlgorithms))
	for i, a := range jwtAlgorithms {
		algorithms[i] = string(a)
	}
	v.verifier = oidclib.NewVerifier(cfg.Issuer, keySet{v}, &oidclib.Config{
		ClientID: cfg.Audience, SkipClientIDCheck: cfg.Audience == "", SkipIssuerCheck: cfg.Issuer == "",
		SupportedSigningAlgs: algorithms, Now: cfg.Now,
	})
	return v, nil
}

// errNoKeys is the error while the key set is missing because it cannot be loaded.
var errNoKeys = problem.New(problem.Unavailable, "the keys that verify JWTs cannot be loaded")

// Verify returns the payload of a JWT with a valid signature, time, issuer and audience. Error: problem.Unavailable if
// the keys cannot be loaded.
func (v *Verifier) Verify(ctx context.Context, token string) (payload []byte, err error) {
	verified, err := v.verifier.Verify(ctx, token)
	if err != nil {
		if errors.Is(err, errNoKeys) || v.current() == nil {
			return nil, errNoKeys
		}
		return nil, err
	}
	var raw rawClaims
	return raw, verified.Claims(&raw)
}

// rawClaims are claims as they were sent.
type rawClaims []byte

// UnmarshalJSON keeps the text.
func (c *rawClaims) UnmarshalJSON(b []byte) error { *c = append((*c)[:0], b...); return nil }

// keySet is the form of a Verifier that the OpenID library calls.
type keySet struct{ *Verifier }

// VerifySignature returns the payload of a JWT that one of the keys has signed.
func (s keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, jwtAlgorithms)
	if err != nil {
		return nil, err
	}
	id := signed.Signatures[0].Header.KeyID
	for _, fresh := range []bool{false, true} {
		keys, err := s.set(ctx, fresh)
		if err != nil {
			return nil, err
		}
		for i := range keys.Keys {
			if key := &keys.Keys[i]; (id == "" || key.KeyID == id) && key.Use != "enc" && key.IsPublic() {
				if payload, err := signed.Verify(key); err == nil {
					return payload, nil
				}
			}
		}
	}
	return nil, errors.New("no key of the set has signed the JWT")
}

func (v *Verifier) current() *jose.JSONWebKeySet {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.keys
}

// set returns the keys. It first loads them if there are none, if they are older than keysAge, or
// if fresh is set. It does not load them again within keysBetween. If the load fails, set returns
// the previous keys.
func (v *Verifier) set(ctx context.Context, fresh bool) (*jose.JSONWebKeySet, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.cfg.Now()
	if old := v.keys == nil || now.Sub(v.loaded) >= keysAge; (fresh || old) && (v.tried.IsZero() || now.Sub(v.tried) >= keysBetween) {
		v.tried = now
		// The load continues even if the client of this request disconnects, because other requests
		// need the keys too.
		if keys, err := v.load(context.WithoutCancel(ctx)); err == nil {
			v.keys, v.loaded = keys, now
		}
	}
	if v.keys == nil {
		return nil, errNoKeys
	}
	return v.keys, nil
}

// remote reports whether cfg.Keys is a URL, not a file.
func (v *Verifier) remote() bool { return strings.Contains(v.cfg.Keys, "://") }

func (v *Verifier) load(ctx context.Context) (*jose.JSONWebKeySet, error) {
	text, err := v.read(ctx)
	if err != nil {
		return nil, err
	}
	keys := new(jose.JSONWebKeySet)
	if err := json.Unmarshal(text, keys); err != nil {
		return nil, fmt.Errorf("it is no JSON Web Key Set: %w", err)
	}
	return keys, nil
}

func (v *Verifier) read(ctx context.Context) ([]byte, error) {
	if !v.remote() {
		return os.ReadFile(v.cfg.Keys)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, v.cfg.Keys, http.NoBody)
	if err != nil {
		return nil, err
	}
	a, err := v.cfg.HTTPClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", a.Status)
	}
	return io.ReadAll(io.LimitReader(a.Body, maxKeys))
}
