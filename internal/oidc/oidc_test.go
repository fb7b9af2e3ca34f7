package oidc_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/oidc"
	"github.com/headgate/headgate/internal/problem"
)

const (
	client   = "headgate"
	secret   = "a secret with : and %"
	redirect = "https://headgate.example/sign-in/oidc/callback"
)

// An issuer is an OpenID provider in this process, with discovery, keys, a page that signs
// everybody in as Ann, and tokens. It returns a token once for each code, and only to a
// client with the PKCE verifier.
type issuer struct {
	*httptest.Server
	t    *testing.T
	key  *rsa.PrivateKey
	away atomic.Bool // answers 503
	asks atomic.Int64

	mu     sync.Mutex
	codes  map[string]url.Values // what was asked at authorize
	claims func(map[string]any)  // changes the token's claims
	sign   func(head, claims map[string]any) string
}

var testKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{t: t, key: testKey(), codes: map[string]url.Values{}, claims: func(map[string]any) {}}
	i.sign = i.signed
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.discovery)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /authorize", i.authorize)
	mux.HandleFunc("POST /token", i.token)
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.asks.Add(1)
		if i.away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) answer(w http.ResponseWriter, document map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(document); err != nil {
		i.t.Error(err)
	}
}

func (i *issuer) discovery(w http.ResponseWriter, _ *http.Request) {
	i.answer(w, map[string]any{
		"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token",
		"jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
	})
}

func (i *issuer) keys(w http.ResponseWriter, _ *http.Request) {
	b := base64.RawURLEncoding
	i.answer(w, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k1",
		"n": b.EncodeToString(i.key.N.Bytes()), "e": b.EncodeToString(big.NewInt(int64(i.key.E)).Bytes()),
	}}})
}

func (i *issuer) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	for name, want := range map[string]string{
		"client_id": client, "redirect_uri": redirect, "response_type": "code", "code_challenge_method": "S256", "scope": "openid email profile",
	} {
		if q.Get(name) != want {
			i.t.Errorf("authorize was asked with %s %q, want %q", name, q.Get(name), want)
		}
	}
	code := rand.Text()
	i.mu.Lock()
	i.codes[code] = q
	i.mu.Unlock()
	http.Redirect(w, r, redirect+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	id, password, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	password, _ = url.QueryUnescape(password)
	i.mu.Lock()
	defer i.mu.Unlock()
	asked, known := i.codes[r.FormValue("code")]
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	if !known || id != client || password != secret ||
		base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"error":"invalid_grant"}`))
		return
	}
	delete(i.codes, r.FormValue("code"))
	now := time.Now()
	claims := map[string]any{
		"iss": i.URL, "aud": client, "sub": "u-17", "nonce": asked.Get("nonce"), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"email": "Ann@example.com", "email_verified": true, "name": "Ann",
	}
	i.claims(claims)
	i.answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": i.sign(map[string]any{"alg": "RS256", "kid": "k1"}, claims)})
}

// signed makes a JWT under RS256.
func (i *issuer) signed(head, claims map[string]any) string {
	text := part(i.t, head) + "." + part(i.t, claims)
	sum := sha256.Sum256([]byte(text))
	sign, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		i.t.Error(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(sign)
}

func part(t *testing.T, document map[string]any) string {
	text, err := json.Marshal(document)
	if err != nil {
		t.Error(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func provider(t *testing.T, i *issuer) *oidc.Provider {
	t.Helper()
	p, err := oidc.New(oidc.Config{Issuer: i.URL, ClientID: client, ClientSecret: secret, RedirectURL: redirect, HTTPClient: i.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// signIn goes to the provider's page as a browser does, and gives the cookie
// and what came back.
func signIn(t *testing.T, i *issuer, p *oidc.Provider) (cookie, code, state string) {
	t.Helper()
	page, cookie, err := p.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	browser := *i.Client()
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	back, err := answer.Location()
	if err != nil {
		t.Fatal(err)
	}
	return cookie, back.Query().Get("code"), back.Query().Get("state")
}

func TestSignInByProvider(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	p := provider(t, i)
	cookie, code, state := signIn(t, i, p)
	got, err := p.Finish(t.Context(), cookie, code, state)
	want := accounts.Identity{Issuer: i.URL, Subject: "u-17", Email: "Ann@example.com", Verified: true, Name: "Ann"}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	// Nothing is shared between two sign-ins, and the cookie stays in the browser.
	page1, cookie1, _ := p.Start(t.Context())
	page2, cookie2, _ := p.Start(t.Context())
	if cookie1 == cookie2 || page1 == page2 || strings.Contains(page1, cookie1) {
		t.Errorf("pages %s and %s, cookies %s and %s", page1, page2, cookie1, cookie2)
	}
}

func TestEmailIsTheirsOnlyWhenVerified(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set      map[string]any
		email    string
		verified bool
	}{
		"verified as text": {map[string]any{"email_verified": "true"}, "Ann@example.com", true},
		"not verified":     {map[string]any{"email_verified": false}, "Ann@example.com", false},
		"not as text":      {map[string]any{"email_verified": "false"}, "Ann@example.com", false},
		"a number":         {map[string]any{"email_verified": 1}, "Ann@example.com", false},
		"not said":         {map[string]any{"email_verified": nil}, "Ann@example.com", false},
		"no e-mail":        {map[string]any{"email": nil}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			i.claims = func(claims map[string]any) { maps.Copy(claims, c.set) }
			p := provider(t, i)
			cookie, code, state := signIn(t, i, p)
			got, err := p.Finish(t.Context(), cookie, code, state)
			if err != nil || got.Email != c.email || got.Verified != c.verified || got.Subject != "u-17" {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestTokenIsRefused(t *testing.T) {
	t.Parallel()
	set := func(name string, value any) func(*issuer) {
		return func(i *issuer) { i.claims = func(claims map[string]any) { claims[name] = value } }
	}
	sign := func(f func(i *issuer, head, claims map[string]any) string) func(*issuer) {
		return func(i *issuer) {
			i.sign = func(head, claims map[string]any) string { return f(i, head, claims) }
		}
	}
	for name, spoil := range map[string]func(*issuer){
		"another nonce":    set("nonce", "other"),
		"no nonce":         set("nonce", ""),
		"another audience": set("aud", "somebody else"),
		"another issuer":   set("iss", "https://evil.example"),
		"expired":          set("exp", time.Now().Add(-time.Hour).Unix()),
		"no subject":       set("sub", ""),
		"no token":         sign(func(*issuer, map[string]any, map[string]any) string { return "" }),
		"no signature": sign(func(i *issuer, _, claims map[string]any) string {
			return part(i.t, map[string]any{"alg": "none"}) + "." + part(i.t, claims) + "."
		}),
		"signature cut": sign(func(i *issuer, head, claims map[string]any) string {
			token := i.signed(head, claims)
			return token[:len(token)-8]
		}),
		"key of a stranger": sign(func(i *issuer, head, claims map[string]any) string { return stranger(t, i).signed(head, claims) }),
		"claims changed": sign(func(i *issuer, head, claims map[string]any) string {
			parts := strings.Split(i.signed(head, claims), ".")
			claims["sub"] = "the owner"
			return parts[0] + "." + part(i.t, claims) + "." + parts[2]
		}),
		"HS256 under the public key": sign(func(i *issuer, _, claims map[string]any) string {
			return part(i.t, map[string]any{"alg": "HS256", "kid": "k1"}) + "." + part(i.t, claims) + "." + base64.RawURLEncoding.EncodeToString(i.key.N.Bytes()[:32])
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			spoil(i)
			p := provider(t, i)
			cookie, code, state := signIn(t, i, p)
			refused(t, p, cookie, code, state)
		})
	}
}

// stranger is the issuer with another key under the same name.
func stranger(t *testing.T, i *issuer) *issuer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Error(err)
	}
	return &issuer{t: i.t, key: key}
}

func refused(t *testing.T, p *oidc.Provider, cookie, code, state string) {
	t.Helper()
	who, err := p.Finish(t.Context(), cookie, code, state)
	if !problem.Is(err, problem.Unauthenticated) || who != (accounts.Identity{}) {
		t.Errorf("%+v, %v, want a refusal", who, err)
	}
	var shown *problem.Problem
	if errors.As(err, &shown) && (shown.Code != "oidc_refused" || strings.Contains(err.Error(), secret) || (code != "" && strings.Contains(err.Error(), code))) {
		t.Errorf("refused with %q: %v", shown.Code, err)
	}
}

func TestStateAndCodeServeOnce(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	p := provider(t, i)
	cookie, code, state := signIn(t, i, p)
	otherCookie, otherCode, otherState := signIn(t, i, p)
	before := i.asks.Load()
	for name, c := range map[string][3]string{
		"no cookie":             {"", code, state},
		"a cookie made up":      {"abc", code, state},
		"another's cookie":      {otherCookie, code, state},
		"another's state":       {cookie, code, otherState},
		"no state":              {cookie, code, ""},
		"no code":               {cookie, "", state},
		"cookie with a newline": {cookie + "\n", code, state},
	} {
		t.Run(name, func(t *testing.T) { refused(t, p, c[0], c[1], c[2]) })
	}
	if asked := i.asks.Load() - before; asked != 0 {
		t.Errorf("the provider was asked %d times for what was not begun here", asked)
	}
	// A code that was brought into another browser fails by the PKCE verifier.
	refused(t, p, cookie, otherCode, state)
	if _, err := p.Finish(t.Context(), cookie, code, state); err != nil {
		t.Fatal(err)
	}
	refused(t, p, cookie, code, state)
}

func TestProviderMayBeAwayAtStart(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.away.Store(true)
	p := provider(t, i)
	if i.asks.Load() != 0 {
		t.Error("the provider was asked before anybody signed in")
	}
	if _, _, err := p.Start(t.Context()); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
	i.away.Store(false)
	cookie, code, state := signIn(t, i, p)
	i.away.Store(true)
	if _, err := p.Finish(t.Context(), cookie, code, state); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
	i.away.Store(false)
	if _, err := p.Finish(t.Context(), cookie, code, state); err != nil {
		t.Errorf("once it is back: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, _, err := provider(t, i).Start(ended); !problem.Is(err, problem.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	good := oidc.Config{Issuer: "https://id.example", ClientID: client, RedirectURL: redirect}
	if _, err := oidc.New(good); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*oidc.Config){
		"issuer: must be a URL":       func(c *oidc.Config) { c.Issuer = "id.example" },
		"issuer: must be https":       func(c *oidc.Config) { c.Issuer = "http://id.example" },
		"issuer: must be a URL like":  func(c *oidc.Config) { c.Issuer = "https://user:pass@id.example" },
		"redirect URL: must be a URL": func(c *oidc.Config) { c.RedirectURL = "" },
		"client id: must not":         func(c *oidc.Config) { c.ClientID = "" },
	} {
		c := good
		spoil(&c)
		if _, err := oidc.New(c); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
