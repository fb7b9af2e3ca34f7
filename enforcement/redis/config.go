package redis

import (
	"cmp"
	"context"
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

// Config has the address of Redis and the settings of a Limiter.
type Config struct {
	// URL begins with redis://, rediss:// or unix://. It may have a user, a password,
	// several addresses separated by commas, and the database as its path. In the
	// query, cluster=true selects a cluster. master_name selects Sentinels; the
	// addresses are then those of the Sentinels, and sentinel_username and
	// sentinel_password sign in there. With unix://, the query parameter db selects the
	// database. Required.
	URL string
	// TLS is the TLS configuration for rediss://. Default: nil, which stands for the root certificates
	// of the system.
	TLS *tls.Config
	// Prefix begins every key. It must not contain a brace. Default: "hg:".
	Prefix string
	// Tags is the number of shared homes: hash tags, each for many tenants. It must be the same on all
	// nodes. Default: 64.
	Tags int
	// Timeout is the time within which Redis must answer a call. It starts when the call is written to a
	// connection, so it excludes the time that a request waits in this process. Default: 50ms.
	Timeout time.Duration
	// Connections is the largest number of calls in flight. On a cluster, it is the number for each
	// home. Further requests wait and share the next call. Default: 4, and 1 on a cluster.
	Connections int
	// Denials is the number of denied requests that this node remembers, each for up to
	// a second. The node denies such a request again without a call. A negative number
	// disables the memory. Default: 16,384.
	Denials int
	// Keys is the largest number of live keys of a tenant whose requests have no
	// Request.MaxKeys. If the tenant already has as many, new keys of one of its limits share
	// one overflow counter. Default: 1,000,000.
	Keys int64
	// Reread returns the URL with the current user and password. Each new connection uses these. Reread
	// must be safe for concurrent use. Default: the user and password of URL.
	Reread func() (string, error)
	// Strict makes New fail if Redis may evict keys: its maxmemory-policy is not
	// noeviction, or the Redis user may not read it.
	Strict bool
	// Now replaces the clock of Redis in tests and simulations. It returns microseconds since the epoch.
	// If Now is set, all keys expire after an hour, whatever the window. Now must be nil for real
	// traffic. Default: nil.
	Now func() int64
	// Durable makes the Limiter decide a durable request only if Redis has all durable
	// counters. Otherwise the verdict is Lost, until [Limiter.KeepRestored] has restored them.
	// Durable has no effect if Now is set. Default: off, as for a Limiter without a journal.
	Durable bool
	// Node is the ID of this node, as [enforcement.Journal] returns it. It is used only with
	// Durable. Default: a random ID.
	Node string
	// Observe is called with the duration of each answered call and probe. It must
	// return quickly and be safe for concurrent use. Default: none.
	Observe func(time.Duration)
	// Logger logs failures of Redis and their ends. Default: none.
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
	c.Node = cmp.Or(c.Node, randomID())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c *Config) check() error {
	switch {
	case c.URL == "":
		return errors.New("redis: no URL")
	case strings.ContainsAny(c.Prefix, "{}"):
		return fmt.Errorf("redis: the prefix %q contains a brace", c.Prefix)
	case c.Timeout < 0 || c.Connections < 0 || c.Tags < 0:
		return errors.New("redis: timeout, connections and tags must not be negative")
	}
	return nil
}

// options returns the options of the go-redis client. It disables the client's retries, because
// a script that is sent twice charges twice.
func (c *Config) options() (*redis.UniversalOptions, error) {
	o, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	if c.TLS != nil && o.TLSConfig != nil {
		o.TLSConfig = c.TLS
	}
	if c.Reread != nil {
		o.CredentialsProviderContext = c.credentials
	}
	o.MaxRetries = -1   // disables retries; 0 would mean 3
	o.MaxRedirects = -1 // for cluster clients, this setting disables retries
	o.DialerRetries = 1
	o.DialTimeout = mostPatience * c.Timeout / 2 // the breaker ends a dial earlier
	o.ReadTimeout, o.WriteTimeout = -2, -2       // -2: no timeout, because conn has its own deadlines
	o.PoolTimeout = time.Minute                  // the wait for a connection ends when the breaker opens
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

// credentials returns the current user and password.
func (c *Config) credentials(context.Context) (user, password string, err error) {
	text, err := c.Reread()
	if err != nil {
		return "", "", fmt.Errorf("redis: read the password again: %w", err)
	}
	o, err := parseURL(text)
	if err != nil {
		return "", "", err
	}
	return o.Username, o.Password, nil
}

// drawConnections is the number of connections that draw leased quota from Redis. They are additional
// to those that decide checks (see lane).
const drawConnections = 4

// callOptions returns the options of the client that sends checks and draws. On a
// single server, its pool has a connection for each call that may be in flight.
func (l *Limiter) callOptions(o *redis.UniversalOptions) *redis.UniversalOptions {
	calls := *o
	calls.PoolSize = l.config.Connections + drawConnections
	if o.IsClusterMode {
		calls.PoolSize = max(l.config.Connections*l.config.Tags, 64)
	}
	calls.Dialer = dialer(o.TLSConfig, l.config.Timeout, suspectAfter, func() { l.health.suspect() })
	if l.config.Durable && l.config.Now == nil {
		calls.OnConnect = func(ctx context.Context, cn *redis.Conn) error {
			err := l.confirmNew(ctx, cn)
			if o.MasterName != "" && redis.HasErrorPrefix(err, "unknown command") {
				return nil // go-redis also calls this for a connection to a Sentinel, which has no scripts
			}
			return err
		}
	}
	return &calls
}

// probeOptions returns the options of the client that sends probes. Probes have their
// own connection, so they never wait behind checks.
func (l *Limiter) probeOptions(o *redis.UniversalOptions) *redis.UniversalOptions {
	probes := *o
	probes.PoolSize, probes.MinIdleConns = 2, 1
	probes.Dialer = dialer(o.TLSConfig, l.config.Timeout, silentAfter, l.probeIsSilent)
	return &probes
}

// parseURL returns the options in a URL. Its errors do not contain the URL, which may
// contain a password.
func parseURL(text string) (*redis.UniversalOptions, error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return nil, errors.New("redis: the URL has no scheme: redis://, rediss:// or unix://")
	}
	// net/url accepts only one address. Therefore parseURL removes the addresses before it parses the
	// rest.
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

// setAddresses sets the addresses in the options, and the TLS settings that the scheme
// needs. It returns the database in the path of the URL.
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

// setParameters sets the options from the query of the URL. If the query has the parameter db, it
// replaces the database in the path.
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
