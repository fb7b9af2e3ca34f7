package headgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Version is the version of this package. The User-Agent header of every call contains it.
const Version = "0.1.0"

// OnUnreachable says how a check is decided if Headgate does not decide it.
type OnUnreachable string

const (
	Open     OnUnreachable = "open"     // allow the request
	Closed   OnUnreachable = "closed"   // deny the request
	Callback OnUnreachable = "callback" // call Config.Decide
)

// Config configures a Client. URL and Token are required.
type Config struct {
	// URL is the address of Headgate, such as http://127.0.0.1:8080.
	URL string
	// Token is the token of an operator key or a tenant key. Check needs the scope check.
	Token string
	// Timeout is the maximum time of a check, including its retries. Default: 250 ms.
	Timeout time.Duration
	// OnUnreachable decides checks that Headgate does not decide. Default: Open.
	// A request that Headgate rejects with 4xx (except 401, 408 and 429) is denied even
	// with Open, so that a client cannot choose contents that pass unchecked.
	OnUnreachable OnUnreachable
	// Decide reports whether to allow a request that Headgate did not decide. err is the reason. It
	// is called if OnUnreachable is Callback.
	Decide func(ctx context.Context, request CheckRequest, err error) bool
	// MaxRetries is the maximum number of retries of a call; a negative number means none. A call
	// is repeated only if it has charged nothing: if the connection failed, or if the response is
	// 503 with Retry-After. Default: 2.
	MaxRetries int
	// RememberDenials makes the client answer a repeated request itself after a denial, until the
	// retry time of the denial, but at most for 1 s. Default: false.
	RememberDenials bool
	// Transport sends the calls. Default: a new transport, whose connection pool no other client shares.
	Transport http.RoundTripper
	// Hooks receive events for logs and metrics. Default: none.
	Hooks Hooks
}

// Hooks are functions that a Client calls, for logs and metrics. They must return
// quickly. Each may be nil.
type Hooks struct {
	// Decided is called after each check, and for each item of a batch.
	Decided func(ctx context.Context, request CheckRequest, decision Decision, elapsed time.Duration)
	// Failed is called when a call has failed and is not repeated.
	Failed func(ctx context.Context, err error)
	// Retrying is called before each retry. wait is the time until the retry.
	Retrying func(ctx context.Context, err error, wait time.Duration)
}

// A Client calls Headgate. It is safe for concurrent use. One Client for each process is
// enough: it holds the connection pool.
type Client struct {
	config   Config
	base     *url.URL
	check    *url.URL
	batch    *url.URL
	reserve  *url.URL
	header   http.Header // headers of every POST; requests share this map, so it must not be changed
	pool     *http.Transport
	budget   budget
	denials  denials
	maxTries int
}

// New returns a client. It makes no call.
func New(config Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(config.URL, "/"))
	if err != nil {
		return nil, fmt.Errorf("headgate: Config.URL: %w", err)
	}
	if base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("headgate: Config.URL is %q: it must be like https://headgate.example", config.URL)
	}
	if config.Token == "" || strings.ContainsFunc(config.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("headgate: Config.Token is empty or has characters that no key has")
	}
	if config.Timeout < 0 {
		return nil, fmt.Errorf("headgate: Config.Timeout is %s: it must be positive", config.Timeout)
	}
	if config.Timeout == 0 {
		config.Timeout = 250 * time.Millisecond
	}
	switch config.OnUnreachable {
	case "":
		config.OnUnreachable = Open
	case Open, Closed:
	case Callback:
		if config.Decide == nil {
			return nil, errors.New("headgate: Config.OnUnreachable is callback: set Config.Decide")
		}
	default:
		return nil, fmt.Errorf("headgate: Config.OnUnreachable is %q: it must be open, closed or callback", config.OnUnreachable)
	}
	c := &Client{
		config:  config,
		base:    base,
		check:   at(base, "/v1/check"),
		batch:   at(base, "/v1/check/batch"),
		reserve: at(base, "/v1/reservations"),
		header: http.Header{
			"Authorization": {"Bearer " + config.Token},
			"Content-Type":  {"application/json"},
			"User-Agent":    {"headgate-go/" + Version},
		},
		maxTries: 3,
	}
	switch {
	case config.MaxRetries < 0:
		c.maxTries = 1
	case config.MaxRetries > 0:
		c.maxTries = 1 + config.MaxRetries
	}
	if config.Transport == nil {
		c.pool = newPool()
		c.config.Transport = c.pool
	}
	c.budget.tokens = budgetMax
	return c, nil
}

// at returns the URL of a path of the API. The base URL may have a path, for example that of a
// proxy.
func at(base *url.URL, path string) *url.URL {
	u := *base
	u.Path, u.RawPath = base.Path+path, ""
	return &u
}

// newPool returns a transport that keeps enough idle connections for busy gateways. It does not ask
// for compressed responses, because responses are small.
func newPool() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       60 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		DisableCompression:    true,
		ExpectContinueTimeout: time.Second,
	}
}

// Close closes the idle connections of the client. It does nothing if Config.Transport is set.
func (c *Client) Close() {
	if c.pool != nil {
		c.pool.CloseIdleConnections()
	}
}
