// Package oidc signs people in at an OpenID provider. It uses the authorization code flow with PKCE, state and nonce.
//
// Start returns the provider's sign-in page and a cookie. Finish verifies the provider's token and returns an
// accounts.Identity. The package accounts decides whether that identity has an account. This package must not depend
// on pages and on attributes of cookies. No other package imports the OpenID libraries.
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

// Config configures a Provider.
type Config struct {
	// Issuer is the provider's URL, exactly as the provider reports it. It must be https, except for a provider on
	// this machine. Required.
	Issuer string
	// ClientID and ClientSecret identify Headgate at the provider. The secret may be empty for a public client.
	ClientID, ClientSecret string
	// RedirectURL is the page to which the provider sends people back. That page calls Finish. Required.
	RedirectURL string
	// HTTPClient sends the requests to the provider. Default: a client with a timeout of 10 s.
	HTTPClient *http.Client
	// Now returns the current time, with which the expiry of tokens is checked. Default: time.Now.
	Now func() time.Time
}

// A Provider is one OpenID provider. It is safe for concurrent use.
type Provider struct {
	cfg   Config
	found chan *discovered // a channel with a capacity of one, used as a lock; its element is nil before the discovery
}

// A discovered has the endpoints and the keys of the provider.
type discovered struct {
	oauth    oauth2.Config
	verifier *oidclib.IDTokenVerifier
}

// New returns a Provider. It sends no request, so it succeeds even if the provider is unavailable; the next sign-in
// contacts the provider. The error names the invalid setting.
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
		cfg.HTTPClient = &http.Client{Timeout: 10 * time.Second, Transport: boundedAnswers{http.DefaultTransport}}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &Provider{cfg: cfg, found: make(chan *discovered, 1)}
	p.found <- nil
	return p, nil
}

// maxAnswer is the maximum size of a response of the provider in bytes, after decompression.
const maxAnswer = 1 << 20

// boundedAnswers is a transport that limits the size of responses to maxAnswer. Reading more
// returns an error. Without the limit, an endless response would fill the memory, because the
// OpenID library reads responses as a whole.
type boundedAnswers struct{ http.RoundTripper }

// RoundTrip sends the request and limits the size of the response body.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}

// checkURL returns an error unless the URL is https, or http on this machine. The error never contains a password
// from the URL.
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

// errAway returns the error for a provider that cannot be reached.
func errAway(cause error) error {
	return &problem.Problem{
		Kind: problem.Unavailable, Message: "the sign-in provider does not answer: try again soon, or sign in by password", Cause: cause,
	}
}

// errRefused returns the error for an invalid sign-in. People see the same message for every cause;
// only the log contains the cause.
func errRefused(cause error) error {
	return &problem.Problem{
		Kind: problem.Unauthenticated, Code: "oidc_refused",
		Message: "this sign-in is over or was not begun here: begin again", Cause: cause,
	}
}

// discover returns the endpoints and keys of the provider. After the first successful request, it
// returns the stored result. After a failed request, the next call sends another request. Only one
// request runs at a time.
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

// Start begins a sign-in. It returns the URL of the provider's page, and the value of a cookie that Finish needs. The
// error is problem.Unavailable if the provider is unavailable.
func (p *Provider) Start(ctx context.Context) (page, cookie string, err error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	var secret [32]byte
	rand.Read(secret[:]) // rand.Read never returns an error
	cookie = base64.RawURLEncoding.EncodeToString(secret[:])
	return d.oauth.AuthCodeURL(derive(cookie, "state"), oidclib.Nonce(derive(cookie, "nonce")),
		oauth2.S256ChallengeOption(derive(cookie, "verifier"))), cookie, nil
}

// derive computes the state, the nonce or the PKCE verifier from the cookie; what selects one of
// them. The cookie is a secret that never leaves the browser, so it binds the sign-in to this
// browser. The provider gets only values that are derived from the secret.
func derive(cookie, what string) string {
	mac := hmac.New(sha256.New, []byte(cookie))
	mac.Write([]byte(what))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// Finish completes a sign-in. It takes the cookie from Start and the parameters that the provider sent through the
// browser. The caller must delete the cookie in any case, because a state must be used only once. Errors:
// problem.Unauthenticated, problem.Unavailable.
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

// exchange exchanges a code for a token. It verifies the token's issuer, audience, expiry, algorithm and signature.
func (p *Provider) exchange(ctx context.Context, d *discovered, code, verifier string) (*oidclib.IDToken, error) {
	ctx = oidclib.ClientContext(ctx, p.cfg.HTTPClient)
	tokens, err := d.oauth.Exchange(ctx, code, oauth2.VerifierOption(verifier))
	if refused := (*oauth2.RetrieveError)(nil); errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError {
		// The error's text contains the provider's response, which may contain secrets that this node sent.
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

// identity returns the person that the claims of a token describe.
func identity(token *oidclib.IDToken) (accounts.Identity, error) {
	var claims struct {
		Email    string          `json:"email"`
		Verified json.RawMessage `json:"email_verified"` // a boolean, or the same value as a text
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
