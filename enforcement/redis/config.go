package redis

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Config says where Redis is and how to use it.
type Config struct {
	// URL is redis://, rediss:// or unix://, with user and password where there
	// are some, several addresses separated by commas, the database as path, and
	// as query cluster=true, or master_name (and sentinel_username,
	// sentinel_password) when the addresses are Sentinels'. With unix:// the
	// database is the query's db. Required.
	URL string
	// TLS replaces the settings of rediss://. Default: the system's roots.
	TLS *tls.Config
	// Prefix begins every key. It must not hold a brace. Default: "hg:".
	Prefix string
	// Tags is how many homes tenants share; all nodes must agree on it. Default: 64.
	Tags int
	// Timeout is how long Redis may take to answer a call, from when the call is
	// written. Time that a request waits in this process is not part of it.
	// Default: 50ms.
	Timeout time.Duration
	// Connections is how many calls may be in flight at once, on a cluster for
	// each home. Requests beyond them share the next call. Default: 4, and 1 on a
	// cluster.
	Connections int
	// Denials is how many denied requests are remembered for up to a second, so
	// that they are denied again without a call. Negative: none. Default: 16,384.
	Denials int
	// Keys is how many live keys a tenant may have whose requests name no bound of
	// their own. Above it, new keys of the tenant share one overflow counter for each
	// limit. Default: 1,000,000.
	Keys int64
	// Now replaces Redis' clock, in microseconds since the epoch, for tests and
	// simulations; keys then live for an hour, whatever the window. It must be
	// nil where real traffic is limited. Default: nil.
	Now func() int64
	// Observe is called with the time that each answered call took, of the calls
	// that Take makes and of the probes. It must be quick, and safe for concurrent
	// use. Default: none.
	Observe func(time.Duration)
	// Logger. Default: none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "hg:")
	c.Tags = cmp.Or(c.Tags, 64)
	c.Timeout = cmp.Or(c.Timeout, 50*time.Millisecond)
	c.Keys = cmp.Or(c.Keys, 1_000_000)
	if c.Observe == nil {
		c.Observe = func(time.Duration) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) check() error {
	switch {
	case c.URL == "":
		return errors.New("redis: no URL")
	case strings.ContainsAny(c.Prefix, "{}"):
		return fmt.Errorf("redis: the prefix %q holds a brace", c.Prefix)
	case c.Timeout < 0 || c.Connections < 0 || c.Tags < 0:
		return errors.New("redis: timeout, connections and tags must not be negative")
	}
	return nil
}

// options makes the client's options. Its own retries are off in every form: a
// script that is sent twice charges twice.
func (c *Config) options() (*redis.UniversalOptions, error) {
	o, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	if c.TLS != nil && o.TLSConfig != nil {
		o.TLSConfig = c.TLS
	}
	o.MaxRetries = -1   // 0 would mean 3
	o.MaxRedirects = -1 // a cluster client repeats lost calls under this name
	o.DialerRetries = 1
	o.DialTimeout = mostPatience * c.Timeout / 2 // the breaker ends it earlier
	o.ReadTimeout, o.WriteTimeout = -2, -2       // conn.go has the deadlines
	o.PoolTimeout = time.Minute                  // a waiting call leaves when the breaker opens
	o.PipelinePoolSize = -1
	o.ConnMaxIdleTime = 5 * time.Minute
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if c.Connections == 0 {
		c.Connections = 4
		if o.IsClusterMode {
			c.Connections = 1
		}
	}
	return o, nil
}

// drawConnections are the connections of the client beside those of the lanes.
const drawConnections = 4

// callOptions are those of the client that carries checks and draws. On a single
// server there is a connection for every call that may be in flight.
func (l *Limiter) callOptions(o *redis.UniversalOptions) *redis.UniversalOptions {
	calls := *o
	calls.PoolSize = l.config.Connections + drawConnections
	if o.IsClusterMode {
		calls.PoolSize = max(l.config.Connections*l.config.Tags, 64)
	}
	calls.Dialer = dialer(o.TLSConfig, l.config.Timeout, suspectAfter, func() { l.health.suspect() })
	return &calls
}

// probeOptions are those of the client that only asks how Redis is. Its
// connection is never behind a check.
func (l *Limiter) probeOptions(o *redis.UniversalOptions) *redis.UniversalOptions {
	probes := *o
	probes.PoolSize, probes.MinIdleConns = 2, 1
	probes.Dialer = dialer(o.TLSConfig, l.config.Timeout, silentAfter, l.probeIsSilent)
	return &probes
}

// parseURL returns the options in a URL. Its errors do not contain the URL, because
// it may contain a password.
func parseURL(text string) (*redis.UniversalOptions, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errors.New("redis: the URL has no scheme: redis://, rediss:// or unix://")
	}
	// net/url accepts only one address, so the addresses are removed before the URL is parsed.
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse("redis://" + user + "host" + tail)
	if err != nil {
		return nil, errors.New("redis: the URL is malformed (special characters in user and password must be escaped)")
	}
	o := &redis.UniversalOptions{Protocol: 2}
	if u.User != nil {
		o.Username = u.User.Username()
		o.Password, _ = u.User.Password()
	}
	database, err := setAddresses(o, scheme, hosts, u.Path)
	if err != nil {
		return nil, err
	}
	if err := setParameters(o, u.Query(), database); err != nil {
		return nil, err
	}
	switch {
	case o.IsClusterMode && o.MasterName != "":
		return nil, errors.New("redis: the URL has both cluster and master_name: remove one")
	case o.IsClusterMode && o.DB != 0:
		return nil, errors.New("redis: a cluster has database 0 only")
	case len(o.Addrs) > 1 && o.MasterName == "":
		o.IsClusterMode = true
	}
	return o, nil
}

// setAddresses sets the addresses and the TLS settings of the scheme. It returns the
// database in the path of the URL.
func setAddresses(o *redis.UniversalOptions, scheme, hosts, path string) (database string, err error) {
	switch scheme {
	case "redis", "rediss":
		for host := range strings.SplitSeq(hosts, ",") {
			address, err := withPort(host)
			if err != nil {
				return "", err
			}
			o.Addrs = append(o.Addrs, address)
		}
		if scheme == "rediss" {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
			if len(o.Addrs) == 1 {
				o.TLSConfig.ServerName, _, _ = net.SplitHostPort(o.Addrs[0])
			}
		}
		return strings.Trim(path, "/"), nil
	case "unix":
		if hosts != "" || path == "" {
			return "", errors.New("redis: a unix URL is unix:///path/of/socket or unix://user:password@/path/of/socket")
		}
		o.Addrs = []string{path}
		return "", nil
	}
	return "", fmt.Errorf("redis: unknown scheme %q: redis://, rediss:// or unix://", scheme)
}

// setParameters sets the options in the query of the URL. Its parameter db replaces
// the database of the path.
func setParameters(o *redis.UniversalOptions, query url.Values, database string) (err error) {
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "cluster":
			if o.IsClusterMode, err = strconv.ParseBool(value); err != nil {
				return errors.New("redis: cluster in the URL is not true or false")
			}
		case "master_name":
			o.MasterName = value
		case "sentinel_username":
			o.SentinelUsername = value
		case "sentinel_password":
			o.SentinelPassword = value
		case "db":
			database = value
		default:
			return fmt.Errorf("redis: unknown parameter %q in the URL", name)
		}
	}
	if database != "" {
		if o.DB, err = strconv.Atoi(database); err != nil || o.DB < 0 {
			return errors.New("redis: the database in the URL is not a number")
		}
	}
	return nil
}

func withPort(host string) (string, error) {
	if host == "" {
		return "", errors.New("redis: an address in the URL is empty")
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), "6379"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 || name == "" {
		return "", errors.New("redis: an address in the URL is not host:port")
	}
	return net.JoinHostPort(name, port), nil
}
