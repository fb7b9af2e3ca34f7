// Package oidc signs people in at an OpenID provider: the authorization code
// flow with PKCE, state and nonce.
//
// A sign-in comes in at Start, which gives the provider's page and a cookie,
// and goes out of Finish as an accounts.Identity whose token was verified.
// Whether that somebody has an account is accounts' matter. The package
// refuses to know pages and cookies' attributes, and it alone imports the
// libraries.
package oidc

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	oidclib "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/problem"
)

// Config of a Provider.
type Config struct {
	// Issuer is the provider's URL, exactly as it calls itself. https, but for a
	// provider on this machine. Needed.
	Issuer string
	// ClientID and ClientSecret are Headgate's at the provider. The secret may be
	// empty for a public client.
	ClientID, ClientSecret string
	// RedirectURL is where the provider sends people back: the page that calls
	// Finish. Needed.
	RedirectURL string
	// HTTPClient asks the provider. Default: one that waits 10 s at most.
	HTTPClient *http.Client
	// Now tells the time, for the expiry of tokens. Default: time.Now.
	Now func() time.Time
}

// A Provider is one OpenID provider. It is safe for concurrent use.
type Provider struct {
	cfg   Config
	found chan *discovered // holds one: what discovery found, nil before
}

// discovered is what the provider says of itself.
type discovered struct {
	oauth    oauth2.Config
	verifier *oidclib.IDTokenVerifier
}

// New makes a Provider. It asks nobody: a provider that is away at the start is
// looked for at the next sign-in. The error names the setting at fault.
func New(cfg Config) (*Provider, error) {
	if err := checkURL("issuer", cfg.Issuer); err != nil {
		return nil, err
	}
	if err := checkURL("redirect URL", cfg.RedirectURL); err != nil {
		return nil, err
	}
	if cfg.ClientID == "" {
		return nil, errors.New("client id: must not be empty")
	}
	if cfg.HTTPClient == nil {
		cfg.HTTPClient = &http.Client{Timeout: 10 * time.Second}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Provider{cfg: cfg, found: make(chan *discovered, 1)}
	p.found <- nil
	return p, nil
}

// checkURL takes https, and http on this machine. The error never has a
// password of the URL in it.
func checkURL(name, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || (u.Scheme != "https" && u.Scheme != "http") {
		return fmt.Errorf("%s: must be a URL like https://id.example.com, without user and fragment", name)
	}
	if host := u.Hostname(); u.Scheme == "http" && host != "localhost" && host != "::1" && !strings.HasPrefix(host, "127.") {
		return fmt.Errorf("%s: must be https (http only on this machine)", name)
	}
	return nil
}

// errAway is what people are told while the provider cannot be asked.
func errAway(cause error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Message: "the sign-in provider does not answer: try again soon, or sign in by password", Cause: cause,
	}
}

// errRefused is the same for everything that is wrong with what came back.
func errRefused(cause error) error {
	return &problem.Problem{
		Kind: problem.Unauthenticated, Code: "oidc_refused",
		Message: "this sign-in is over or was not begun here: begin again", Cause: cause,
	}
}

// discover asks the provider for its endpoints and keys once; a failure is
// asked again by the next caller. One asks at a time.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	var found *discovered
	select {
	case found = <-p.found:
		defer func() { p.found <- found }()
	case <-ctx.Done():
		return nil, errAway(ctx.Err())
	}
	if found != nil {
		return found, nil
	}
	provider, err := oidclib.NewProvider(oidclib.ClientContext(ctx, p.cfg.HTTPClient), p.cfg.Issuer)
	if err != nil {
		return nil, errAway(fmt.Errorf("discover the OpenID provider: %w", err))
	}
	found = &discovered{
		oauth: oauth2.Config{
			ClientID: p.cfg.ClientID, ClientSecret: p.cfg.ClientSecret, RedirectURL: p.cfg.RedirectURL,
			Endpoint: provider.Endpoint(), Scopes: []string{oidclib.ScopeOpenID, oidclib.ScopeEmail, oidclib.ScopeProfile},
		},
		verifier: provider.Verifier(&oidclib.Config{ClientID: p.cfg.ClientID, Now: p.cfg.Now}),
	}
	return found, nil
}

// Start begins a sign-in: the provider's page to send somebody to, and the
// value of the cookie that Finish needs. Unavailable.
func (p *Provider) Start(ctx context.Context) (page, cookie string, err error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	var secret [32]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the program instead
	cookie = base64.RawURLEncoding.EncodeToString(secret[:])
	return d.oauth.AuthCodeURL(derive(cookie, "state"), oidclib.Nonce(derive(cookie, "nonce")),
		oauth2.S256ChallengeOption(derive(cookie, "verifier"))), cookie, nil
}

// derive makes state, nonce and PKCE verifier from the cookie: what binds a
// sign-in to one browser is one secret that never leaves it, and the provider
// sees only what was made from it.
func derive(cookie, what string) string {
	mac := hmac.New(sha256.New, []byte(cookie))
	mac.Write([]byte(what))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Finish ends a sign-in with the cookie of Start and what the provider sent
// back by way of the browser. Whoever calls it has the cookie deleted, whatever
// it answers: a state serves once. Unauthenticated, Unavailable.
func (p *Provider) Finish(ctx context.Context, cookie, code, state string) (accounts.Identity, error) {
	secret, err := base64.RawURLEncoding.Strict().DecodeString(cookie)
	if err != nil || len(secret) != 32 || code == "" {
		return accounts.Identity{}, errRefused(errors.New("no cookie or no code"))
	}
	if !same(state, derive(cookie, "state")) {
		return accounts.Identity{}, errRefused(errors.New("the state is not the cookie's"))
	}
	d, err := p.discover(ctx)
	if err != nil {
		return accounts.Identity{}, err
	}
	token, err := p.exchange(ctx, d, code, derive(cookie, "verifier"))
	if err != nil {
		return accounts.Identity{}, err
	}
	if !same(token.Nonce, derive(cookie, "nonce")) {
		return accounts.Identity{}, errRefused(errors.New("the nonce is not the cookie's"))
	}
	return identity(token)
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// exchange gives the verified token for a code: issuer, audience, expiry,
// algorithm and signature are as they must be.
func (p *Provider) exchange(ctx context.Context, d *discovered, code, verifier string) (*oidclib.IDToken, error) {
	ctx = oidclib.ClientContext(ctx, p.cfg.HTTPClient)
	tokens, err := d.oauth.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
		// Its text has the provider's answer, which may have what we sent.
		return nil, errRefused(fmt.Errorf("the provider refused the code with status %d (%.64q)", refused.Response.StatusCode, refused.ErrorCode))
	}
	if err != nil {
		return nil, errAway(fmt.Errorf("exchange the code: %w", err))
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return nil, errRefused(fmt.Errorf("verify the token: %w", err))
	}
	return token, nil
}

// identity reads the claims.
func identity(token *oidclib.IDToken) (accounts.Identity, error) {
	var claims struct {
		Email    string          `json:"email"`
		Verified json.RawMessage `json:"email_verified"` // some providers send text
		Name     string          `json:"name"`
	}
	if err := token.Claims(&claims); err != nil {
		return accounts.Identity{}, errRefused(fmt.Errorf("read the claims: %w", err))
	}
	if token.Subject == "" {
		return accounts.Identity{}, errRefused(errors.New("the token has no subject"))
	}
	verified := string(claims.Verified) == "true" || string(claims.Verified) == `"true"`
	return accounts.Identity{
		Issuer: token.Issuer, Subject: token.Subject,
		Email: claims.Email, Verified: verified && claims.Email != "", Name: claims.Name,
	}, nil
}
