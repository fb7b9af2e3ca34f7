package main

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

const oidcSecret = "canary of a client's secret"

// A provider is an OpenID provider in this process. Every sign-in is by Ann, and each code can
// be used once.
type provider struct {
	*httptest.Server
	t     *testing.T
	key   *rsa.PrivateKey
	email string

	mu     sync.Mutex
	nonces map[string]string // of what was asked, by code
}

func newProvider(t *testing.T, email string) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p := &provider{t: t, key: key, email: email, nonces: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.answer(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"jwks_uri": p.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.answer(w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "k",
			"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) answer(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(document); err != nil {
		p.t.Error(err)
	}
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q, code := r.URL.Query(), rand.Text()
	p.mu.Lock()
	p.nonces[code] = q.Get("nonce")
	p.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	_, password, _ := r.BasicAuth()
	if password, _ = url.QueryUnescape(password); password != oidcSecret {
		p.t.Errorf("the client's secret is %q", password)
	}
	p.mu.Lock()
	nonce, known := p.nonces[r.FormValue("code")]
	delete(p.nonces, r.FormValue("code"))
	p.mu.Unlock()
	if !known {
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	now := time.Now()
	text := p.part(map[string]any{"alg": "RS256", "kid": "k"}) + "." + p.part(map[string]any{
		"iss": p.URL, "aud": "headgate", "sub": "17", "nonce": nonce, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"email": p.email, "email_verified": true, "name": "Ann",
	})
	sum := sha256.Sum256([]byte(text))
	sign, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	if err != nil {
		p.t.Error(err)
	}
	p.answer(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": text + "." + base64.RawURLEncoding.EncodeToString(sign)})
}

func (p *provider) part(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		p.t.Error(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// follow follows the redirect of a response, also to another host.
func (b *browser) follow(a answer) answer {
	b.t.Helper()
	to, err := url.Parse(a.header.Get("Location"))
	if err != nil || to.Path == "" {
		b.t.Fatalf("%d leads to %q", a.status, a.header.Get("Location"))
	}
	if to.Host == "" {
		return b.get(to.RequestURI())
	}
	return b.at(to.Scheme + "://" + to.Host).get(to.RequestURI())
}

// Users who exist can sign in at the configured provider. Others cannot, and no user is
// created.
func TestSignInByOpenIDConnect(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "Ann@example.com")
	addr := freeAddr(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADDR": addr, "HEADGATE_PUBLIC_URL": "http://" + addr, "HEADGATE_LOG_LEVEL": "debug",
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
		"HEADGATE_OIDC_ISSUER": p.URL, "HEADGATE_OIDC_CLIENT_ID": "headgate", "HEADGATE_OIDC_CLIENT_SECRET": oidcSecret, "HEADGATE_OIDC_NAME": "Mill House",
	})
	b := newBrowser(t, node.origin)
	if page := b.get("/sign-in").want(t, 200); !strings.Contains(page.body, "Mill House") {
		t.Error("the page does not offer the provider")
	}
	away := b.get("/sign-in/oidc").want(t, 303)
	back := b.follow(away).want(t, 302)
	b.follow(back).want(t, 303)
	if page := b.get("/account").want(t, 200); !strings.Contains(page.body, "ann@example.com") {
		t.Error("somebody else is signed in")
	}

	// The redirect from the provider can be used once, and only in the browser that started the
	// sign-in.
	if again := b.follow(back); again.status == 303 && !strings.HasPrefix(again.header.Get("Location"), "/sign-in") {
		t.Errorf("the same answer signed in twice: %d to %q", again.status, again.header.Get("Location"))
	}
	stranger := newBrowser(t, node.origin)
	stolen := b.follow(b.get("/sign-in/oidc").want(t, 303)).want(t, 302)
	stranger.follow(stolen)
	stranger.get("/account").want(t, 303)

	if logs, _ := node.logs.read(); strings.Contains(logs, oidcSecret) {
		t.Error("the client's secret is in the log")
	}
}

// A person who has an account only at the provider cannot sign in.
func TestAStrangerAtTheProvider(t *testing.T) {
	t.Parallel()
	p := newProvider(t, "eve@example.com")
	addr := freeAddr(t)
	node := start(t, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_ADDR": addr, "HEADGATE_PUBLIC_URL": "http://" + addr,
		"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword,
		"HEADGATE_OIDC_ISSUER": p.URL, "HEADGATE_OIDC_CLIENT_ID": "headgate", "HEADGATE_OIDC_CLIENT_SECRET": oidcSecret,
	})
	b := newBrowser(t, node.origin)
	b.follow(b.follow(b.get("/sign-in/oidc").want(t, 303)).want(t, 302))
	b.get("/account").want(t, 303)
}
