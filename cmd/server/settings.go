package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/api/envoy"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/logging"
	"github.com/headgate/headgate/internal/mail"
	"github.com/headgate/headgate/internal/problem"
)

// environmentPrefix is the prefix of all environment variables. Every setting is a flag and an
// environment variable (--redis-url, HEADGATE_REDIS_URL). A flag overrides the variable. A
// secret can also be in a file, whose name is in the variable with the suffix _FILE.
const environmentPrefix = "HEADGATE_"

// databaseSettings select the database of tenants and plans.
type databaseSettings struct {
	Config      string `placeholder:"FILE" help:"YAML file with settings of serve, by name: log_level: debug. Flags and variables win over it."`
	DatabaseURL string `default:"sqlite://data/headgate.db" placeholder:"URL" secret:"true" help:"Where tenants and plans are kept: sqlite://relative.db, sqlite:///absolute.db or postgres://user:password@host/name."`
}

// limiterSettings select where counters are stored.
type limiterSettings struct {
	RedisURL    string `placeholder:"URL" secret:"true" help:"Where counters are kept: redis://, rediss:// or unix://; several addresses by comma; ?cluster=true; for Sentinels ?master_name=NAME, sentinel_username, sentinel_password. Empty: in this process."`
	RedisPrefix string `default:"hg:" help:"What every key in Redis begins with."`
	RedisStrict bool   `help:"Do not start with a Redis that may evict counters: its maxmemory-policy is not noeviction, or cannot be read. false: warn."`
}

// logSettings configure the log, which is written to standard error.
type logSettings struct {
	LogLevel  string `default:"info" enum:"debug,info,warn,error" help:"Least level that is logged: debug, info, warn or error."`
	LogFormat string `default:"auto" enum:"auto,text,json" help:"text, json, or auto: text on a terminal."`
}

// serveSettings contains all settings of headgate serve.
type serveSettings struct {
	databaseSettings
	limiterSettings
	logSettings

	Addr           string        `default:"127.0.0.1:8080" placeholder:"HOST:PORT" help:"Where to listen."`
	SnapshotFile   string        `default:"data/headgate.snapshot" placeholder:"FILE" help:"Where a node with Postgres stores its last tenants, plans and hashes of keys. A node that starts while Postgres is away serves checks from this file. off: no file."`
	Nodes          int           `default:"0" help:"How many nodes share the limits: with Redis away, each gives out a share of 1/nodes. 0: the node counts the nodes that report to the database. Of a leased policy, each holds at most 1/nodes of the tenth of a limit that may be leased."`
	LimiterTimeout time.Duration `default:"50ms" help:"How long Redis may take to answer a call, from when it is written, before the policies' on_failure answers. Time inside the node is not part of it; a check behind a call that is not answered waits up to about twice as long, and longer on a machine that is short of processors."`

	MaxWaiting      int `default:"8192" help:"How many checks may wait on this node before further ones are answered 503 with Retry-After; a batch counts as an eighth of its checks. 0: none waits."`
	MaxCounters     int `default:"4000000" help:"How many counters this process keeps at once, about 85 bytes each; a tenant has at most a quarter. Further keys of a limit share one counter."`
	MaxKeys         int `default:"1000000" help:"How many live counters a tenant may have in Redis, about 160 bytes each, logs more. Further keys of a limit share one counter."`
	MaxIdempotency  int `name:"max-idempotency-keys" default:"100000" help:"How many checks with a new Idempotency-Key a tenant may send in 10 minutes, about 300 bytes each; an atomic batch counts once for every 8 limits, and a refundable check once for each 10 minutes for which it is kept. Further ones are answered 503 with Retry-After."`
	MaxReservations int `default:"10000" help:"How many outstanding reservations a tenant may have. Each counts as 6 counters of the tenant. Further ones are answered 503 with Retry-After, and charge nothing."`
	MaxConnections  int `default:"10000" help:"How many connections each port of this process accepts at once; at most three quarters of the files that it may open, divided by the number of its ports for clients. Above it, idle connections are closed first; a small reserve answers health and metrics only."`
	MaxPerAddress   int `name:"max-connections-per-address" default:"0" help:"How many connections one IPv4 address or IPv6 /64 network may have. 0: half of the maximum for all addresses."`

	APIRate           int    `name:"api-rate" default:"6000" help:"How many requests a minute an API key may send to this node for anything but checks. 0: no limit."`
	APIRatePerAddress int    `name:"api-rate-per-address" default:"12000" help:"How many such requests a minute may come from one IPv4 address or IPv6 /64 network; a twentieth of them without a valid key. 0: no limit."`
	Headers           string `default:"draft-11" placeholder:"DIALECT,..." help:"Dialects of the rate-limit headers, by comma: draft-11, draft-06, x-ratelimit, near-limit; or off."`
	RESPAddr          string `name:"resp-addr" placeholder:"HOST:PORT" help:"Serve checks over the Redis protocol (RESP) there; empty: off."`
	EnvoyAddr         string `placeholder:"HOST:PORT" help:"Serve the gRPC services of Envoy for rate limits and external authorization there; empty: off."`
	EnvoyDomains      string `placeholder:"DOMAIN=TENANT,..." help:"Tenants of the domains of Envoy's rate limits, for operator keys: domain=tenant, or domain=@key for an entry that names the tenant. Other domains are the tenant with that name."`
	EnvoyClientCAFile string `name:"envoy-client-ca-file" placeholder:"FILE" help:"Certificate authorities (PEM) of client certificates, which the gRPC services then demand; empty: none."`
	JWTKeys           string `name:"jwt-keys" placeholder:"URL|FILE" help:"JSON Web Key Set, by address or file, that verifies the JWTs whose claims forward-auth and Envoy's external authorization read; empty: claims are not verified."`
	JWTIssuer         string `name:"jwt-issuer" placeholder:"TEXT" help:"Issuer (iss) that these JWTs must have; empty: any."`
	JWTAudience       string `name:"jwt-audience" placeholder:"TEXT" help:"Audience (aud) that these JWTs must have; empty: any."`
	MetricsAddr       string `placeholder:"HOST:PORT" help:"Serve /metrics there, without a key, instead of beside the API."`
	MetricsPublic     string `default:"auto" enum:"auto,true,false" help:"Answer /metrics without an operator key. auto: only to this machine."`
	MetricsTenants    string `placeholder:"SLUG,..." help:"Tenants whose decisions /metrics also counts by name, at most 20; empty: none."`

	RetentionMinutes lifetime `default:"2d" help:"How long minute counts are kept, at least 3h. They roll up to hours."`
	RetentionHours   lifetime `default:"90d" help:"How long hour counts are kept, at least 2d and as long as minutes. They roll up to days."`
	RetentionDays    lifetime `default:"1095d" help:"How long day counts are kept, at least as long as hours."`

	PublicURL       string        `placeholder:"URL" help:"The address that callers use, for links in answers and examples."`
	AllowedHosts    string        `placeholder:"HOST,..." help:"Hosts that requests may name, without ports; others are answered 421. The host of the public URL is always allowed, and so is every host for health and metrics. Empty: all."`
	TrustedProxies  string        `placeholder:"CIDR,..." help:"Networks of the proxies whose X-Forwarded-For is used; empty: none."`
	WebhookNetworks string        `placeholder:"CIDR,..." help:"Private networks that alert messages may be sent to, also without TLS; empty: none."`
	TLSCertFile     string        `name:"tls-cert-file" placeholder:"FILE" help:"Certificate chain (PEM): serve https."`
	TLSKeyFile      string        `name:"tls-key-file" placeholder:"FILE" help:"Key of the certificate (PEM)."`
	H2C             bool          `name:"h2c" help:"Also serve HTTP/2 without TLS, to clients that begin with it (prior knowledge), such as a proxy on this machine. With TLS, HTTP/2 is always on."`
	ShutdownTimeout time.Duration `default:"10s" help:"How long a stop may take, the delay included."`
	ShutdownDelay   time.Duration `default:"-1s" placeholder:"DURATION" help:"How long to serve after /readyz fails, so that load balancers stop first; default: 2s with Postgres, else 0s."`
	Sample          bool          `default:"true" negatable:"" help:"Create a sample plan, tenant and keys in an empty SQLite file."`
	AdminEmail      string        `placeholder:"E-MAIL" help:"First owner, with HEADGATE_ADMIN_PASSWORD; empty: print a set-up link."`
	OIDCIssuer      string        `name:"oidc-issuer" placeholder:"URL" help:"OpenID provider at which people can sign in; empty: none."`
	OIDCClientID    string        `name:"oidc-client-id" help:"What Headgate is called at the provider."`
	OIDCName        string        `name:"oidc-name" default:"your organisation" help:"What the button to sign in there says."`

	RequireSecondFactor string `placeholder:"ROLE,..." help:"Roles that need a second factor to sign in with a password, by comma: owner, editor, viewer, tenant_admin, tenant_viewer. Who has none adds one at the next sign-in. Empty: none."`

	SMTPAddr string `name:"smtp-addr" placeholder:"HOST:PORT" help:"Mail server for alerts and invitations; needs HEADGATE_PUBLIC_URL. Empty: no e-mail."`
	SMTPFrom string `name:"smtp-from" placeholder:"ADDRESS" help:"Sender of the e-mails, such as limits@example.com."`
	SMTPUser string `name:"smtp-user" help:"User at the mail server, with HEADGATE_SMTP_PASSWORD; empty: no sign-in."`
	SMTPTLS  string `name:"smtp-tls" default:"starttls" enum:"starttls,tls,none" help:"starttls: change to TLS before anything is sent (port 587). tls: TLS from the first byte (port 465). none: for a mail server on this machine."`

	// These settings are secrets and have no flags. The function secrets reads them from the environment or from files.
	BootstrapKey, AdminPassword, OIDCClientSecret, SMTPPassword, SecretsKey, SecretsKeyOld, EnvoyKey string `kong:"-"`

	getenv func(string) string // reads the environment variables of OpenTelemetry
}

// unset is the default of a duration flag whose real default depends on other settings.
const unset = "-1s"

// metricsAuto is the default of metrics-public; see localMetrics.
const metricsAuto = "auto"

// The settings that have no flag. They are secrets, and every user of the machine can read the
// arguments of a process.
const (
	bootstrapSetting     = environmentPrefix + "BOOTSTRAP_KEY"
	adminPasswordSetting = environmentPrefix + "ADMIN_PASSWORD"
	oidcSecretSetting    = environmentPrefix + "OIDC_CLIENT_SECRET"
	smtpPasswordSetting  = environmentPrefix + "SMTP_PASSWORD"
	secretsKeySetting    = environmentPrefix + "SECRETS_KEY"
	secretsKeyOldSetting = environmentPrefix + "SECRETS_KEY_OLD"
	envoyKeySetting      = environmentPrefix + "ENVOY_KEY"
)

// secretFields returns pointers to the fields for secrets, by the name of the environment variable.
// A secret can also be in a file that the variable with the suffix _FILE names.
func (s *serveSettings) secretFields() map[string]*string {
	return map[string]*string{
		bootstrapSetting: &s.BootstrapKey, adminPasswordSetting: &s.AdminPassword, oidcSecretSetting: &s.OIDCClientSecret,
		smtpPasswordSetting: &s.SMTPPassword, secretsKeySetting: &s.SecretsKey, secretsKeyOldSetting: &s.SecretsKeyOld,
		envoyKeySetting: &s.EnvoyKey,
	}
}

// secretSettings are the names of the settings that have no flag.
var secretSettings = slices.Sorted(maps.Keys(new(serveSettings).secretFields()))

// readableSecrets are the names of all settings that may contain a secret. The URLs of the
// database and of Redis can contain a password.
var readableSecrets = append([]string{settingName("database-url"), settingName("redis-url")}, secretSettings...)

// secrets reads the settings that have no flag.
func (s *serveSettings) secrets(getenv func(string) string) (err error) {
	for name, value := range s.secretFields() {
		if *value, err = secretFrom(getenv, name); err != nil {
			return err
		}
	}
	return nil
}

// validate checks all settings. Each error names its setting.
func (s *serveSettings) validate(getenv func(string) string) error {
	s.getenv = getenv
	if err := s.secrets(getenv); err != nil {
		return err
	}
	if s.BootstrapKey != "" {
		if err := accounts.ValidBootstrapKey(s.BootstrapKey); err != nil {
			return fmt.Errorf("%s: %w", bootstrapSetting, err)
		}
	}
	if _, err := sealerOf(s.SecretsKey, s.SecretsKeyOld); err != nil {
		return err
	}
	for _, check := range []struct {
		setting string
		err     error
	}{
		{"require-second-factor", validRoles(s.RequireSecondFactor)},
		{"addr", validAddr(s.Addr)},
		{"resp-addr", validOptionalAddr(s.RESPAddr)},
		{"envoy-addr", validOptionalAddr(s.EnvoyAddr)},
		{"envoy-domains", validDomains(s.EnvoyDomains)},
		{"envoy-client-ca-file", validAuthorities(s.TLSCertFile, s.EnvoyClientCAFile)},
		{"jwt-keys", s.validJWT()},
		{"metrics-addr", validOptionalAddr(s.MetricsAddr)},
		{"database-url", validDatabaseURL(s.DatabaseURL)},
		{"nodes", within(s.Nodes, 0, 10_000)},
		{"limiter-timeout", within(s.LimiterTimeout, time.Millisecond, time.Minute)},
		{"shutdown-timeout", within(s.ShutdownTimeout, 0, 10*time.Minute)},
		{"max-counters", within(s.MaxCounters, 1000, 1_000_000_000)},
		{"max-keys", within(s.MaxKeys, 1000, 1_000_000_000)},
		{"max-idempotency-keys", within(s.MaxIdempotency, 1000, 1_000_000_000)},
		{"max-reservations", within(s.MaxReservations, 1, 1_000_000)},
		{"max-waiting", within(s.MaxWaiting, 0, 1_000_000)},
		{"api-rate", within(s.APIRate, 0, 1_000_000_000)},
		{"api-rate-per-address", within(s.APIRatePerAddress, 0, 1_000_000_000)},
		{"max-connections", within(s.MaxConnections, 16, 1_000_000)},
		{"max-connections-per-address", within(s.MaxPerAddress, 0, s.MaxConnections)},
		{"redis-prefix", validPrefix(s.RedisPrefix)},
		{"metrics-tenants", validTenants(s.MetricsTenants)},
		{"retention-minutes", within(s.RetentionMinutes, lifetime(3*time.Hour), lifetime(10*366*day))},
		{"retention-hours", within(s.RetentionHours, max(lifetime(2*day), s.RetentionMinutes), lifetime(10*366*day))},
		{"retention-days", within(s.RetentionDays, s.RetentionHours, lifetime(10*366*day))},
		{"public-url", validPublicURL(s.PublicURL)},
		{"allowed-hosts", validHosts(s.AllowedHosts)},
		{"trusted-proxies", validNetworks(s.TrustedProxies)},
		{"webhook-networks", validNetworks(s.WebhookNetworks)},
		{"headers", validHeaders(s.Headers)},
		{"admin-email", validAdmin(s.AdminEmail, s.AdminPassword)},
		{"oidc-issuer", s.validProvider()},
		{"smtp-addr", s.validMail()},
		{"tls-key-file", bothOrNone(s.TLSCertFile, s.TLSKeyFile)},
		{"tls-cert-file", validCertificate(s.TLSCertFile, s.TLSKeyFile)},
	} {
		if check.err != nil {
			return fmt.Errorf("%s: %w", settingName(check.setting), check.err)
		}
	}
	if s.ShutdownDelay < 0 {
		s.ShutdownDelay = 0
		if s.production() {
			s.ShutdownDelay = 2 * time.Second
		}
	}
	if s.ShutdownDelay > s.ShutdownTimeout {
		return fmt.Errorf("%s: is %s, and must be within %s (%s)", settingName("shutdown-delay"), s.ShutdownDelay,
			settingName("shutdown-timeout"), s.ShutdownTimeout)
	}
	return nil
}

// production reports whether the database is Postgres.
func (s *databaseSettings) production() bool { return !strings.HasPrefix(s.DatabaseURL, "sqlite:") }

func validOptionalAddr(addr string) error {
	if addr == "" {
		return nil
	}
	return validAddr(addr)
}

func validAddr(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("%q is not host:port (127.0.0.1:8080, or :8080 for all addresses)", addr)
	}
	return nil
}

func validDatabaseURL(text string) error {
	for _, scheme := range []string{"sqlite://", "postgres://", "postgresql://"} {
		if strings.HasPrefix(text, scheme) && len(text) > len(scheme) {
			return nil
		}
	}
	return errors.New("must begin with sqlite://, postgres:// or postgresql://") // omits the value, which may have a password
}

const day = 24 * time.Hour

// A lifetime is a retention period in hours or days: 36h, 90d.
type lifetime time.Duration

// UnmarshalText parses a number of hours or days, such as 36h or 90d.
func (l *lifetime) UnmarshalText(text []byte) error {
	m := lifetimeForm.FindSubmatch(text)
	if m == nil {
		return fmt.Errorf("%q is not a number of hours or days, like 36h or 90d", text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return err
	}
	unit := time.Hour
	if string(m[2]) == "d" {
		unit = day
	}
	*l = lifetime(time.Duration(n) * unit)
	return nil
}

var lifetimeForm = regexp.MustCompile(`^([1-9][0-9]{0,4})([hd])$`)

// String formats the lifetime in days if it is a whole number of days, and in hours otherwise.
func (l lifetime) String() string {
	if d := time.Duration(l); d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	return strconv.Itoa(int(time.Duration(l)/time.Hour)) + "h"
}

// metricsTenants returns the slugs in the setting metrics-tenants.
func (s *serveSettings) metricsTenants() []string {
	var slugs []string
	for part := range strings.SplitSeq(s.MetricsTenants, ",") {
		if part = strings.TrimSpace(part); part != "" {
			slugs = append(slugs, part)
		}
	}
	return slugs
}

// validRoles returns an error if text is not a comma-separated list of roles.
func validRoles(text string) error {
	for _, role := range rolesIn(text) {
		if !slices.Contains(accounts.Roles(), role) {
			return fmt.Errorf("%q is not one of owner, editor, viewer, tenant_admin, tenant_viewer", role)
		}
	}
	return nil
}

// rolesIn returns the roles in a comma-separated list.
func rolesIn(text string) (roles []accounts.Role) {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			roles = append(roles, accounts.Role(part))
		}
	}
	return roles
}

// mostNamedTenants bounds the number of tenants with their own series in /metrics.
const mostNamedTenants = 20

func validTenants(text string) error {
	slugs := (&serveSettings{MetricsTenants: text}).metricsTenants()
	for _, slug := range slugs {
		if !problem.ValidSlug(slug) {
			return fmt.Errorf("%q is not the slug of a tenant", slug)
		}
	}
	return within(len(slugs), 0, mostNamedTenants)
}

func within[T int | time.Duration | lifetime](v, least, most T) error {
	if v < least || v > most {
		return fmt.Errorf("is %v, and must be from %v to %v", v, least, most)
	}
	return nil
}

func validPrefix(prefix string) error {
	if len(prefix) == 0 || len(prefix) > 32 || strings.ContainsAny(prefix, "{} \t\r\n*?[]") {
		return fmt.Errorf("%q must have 1 to 32 characters, without braces, brackets, stars, question marks or spaces", prefix)
	}
	return nil
}

func validPublicURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an address like https://limits.example.com", text)
	}
	return nil
}

func validHeaders(text string) error {
	_, err := api.ParseHeaders(text)
	return err
}

func validDomains(text string) error {
	_, err := envoy.ParseDomains(text)
	return err
}

// webhookNetworks returns the networks of --webhook-networks. validate has already checked them.
func (s *serveSettings) webhookNetworks() []netip.Prefix {
	networks, _ := parseNetworks(s.WebhookNetworks)
	list := make([]netip.Prefix, len(networks))
	for i, network := range networks {
		list[i] = netip.MustParsePrefix(network.String())
	}
	return list
}

func validNetworks(text string) error {
	_, err := parseNetworks(text)
	return err
}

func parseNetworks(text string) ([]*net.IPNet, error) {
	var networks []*net.IPNet
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		_, network, err := net.ParseCIDR(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a network like 10.0.0.0/8 or fd00::/8", part)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func validAdmin(email, password string) error {
	switch {
	case (email == "") != (password == ""):
		return fmt.Errorf("goes with %s: set both or none", adminPasswordSetting)
	case email == "":
		return nil
	}
	return accounts.ValidFirstOwner(email, password)
}

// validProvider checks the settings of OpenID Connect. They need the public URL, because the
// provider redirects the browser to it.
func (s *serveSettings) validProvider() error {
	switch {
	case s.OIDCIssuer == "" && s.OIDCClientID == "":
		return nil
	case s.OIDCIssuer == "" || s.OIDCClientID == "":
		return fmt.Errorf("goes with %s: set both or none", settingName("oidc-client-id"))
	case s.PublicURL == "":
		return fmt.Errorf("needs %s: the provider sends people back to it", settingName("public-url"))
	}
	_, err := s.provider()
	return err
}

// mailer returns the mail server of the settings, or nil if there is none.
func (s *serveSettings) mailer() (*mail.Mailer, error) {
	if s.SMTPAddr == "" {
		return nil, nil
	}
	return mail.New(mail.Config{Addr: s.SMTPAddr, From: s.SMTPFrom, User: s.SMTPUser, Password: s.SMTPPassword, TLS: s.SMTPTLS})
}

// validMail checks the settings of the mail server.
func (s *serveSettings) validMail() error {
	switch {
	case s.SMTPAddr == "" && s.SMTPFrom+s.SMTPUser+s.SMTPPassword != "":
		return errors.New("is empty, but other settings of the mail server are set: set it, or none of them")
	case s.SMTPAddr != "" && s.SMTPFrom == "":
		return fmt.Errorf("goes with %s: set both or none", settingName("smtp-from"))
	case s.SMTPAddr != "" && s.PublicURL == "":
		return fmt.Errorf("needs %s: e-mails have links to it", settingName("public-url"))
	}
	_, err := s.mailer()
	return err
}

func bothOrNone(cert, key string) error {
	if (cert == "") != (key == "") {
		return errors.New("certificate and key go together: set both or none")
	}
	return nil
}

func validCertificate(cert, key string) error {
	if cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("the certificate and its key (%s) cannot be used: %w", settingName("tls-key-file"), err)
	}
	return nil
}

// settingName returns the environment variable of a flag.
func settingName(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// isSetting reports whether a flag also has an environment variable. Flags such as --yes have none,
// because they are meant for one call only.
func isSetting(flag *kong.Flag) bool {
	return flag.Name != "help" && flag.Tag.Get("setting") != "false"
}

// environment returns a kong resolver that reads flags from environment variables. It reads
// flags marked as secret also from the file in NAME_FILE.
func environment(getenv func(string) string) kong.ResolverFunc {
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if !isSetting(flag) {
			return nil, nil
		}
		name := settingName(flag.Name)
		var value string
		var err error
		if flag.Tag.Get("secret") == "true" {
			value, err = secretFrom(getenv, name)
		} else {
			value = getenv(name)
		}
		if err != nil || value == "" {
			return nil, err
		}
		return value, nil
	}
}

// secretFrom returns the value of the variable NAME. If the variable is not set, it returns the
// content of the file that NAME_FILE names, without trailing line breaks.
func secretFrom(getenv func(string) string, name string) (string, error) {
	if value := getenv(name); value != "" {
		return value, nil
	}
	file := getenv(name + "_FILE")
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s_FILE: %w", name, err)
	}
	return strings.TrimRight(string(content), "\r\n"), nil
}

// reread returns a function that reads a secret from its file again. It returns nil if the used
// value does not come from a file.
func (s *serveSettings) reread(flag, used string) func() (string, error) {
	if s.getenv == nil {
		return nil
	}
	name := settingName(flag)
	if value, err := secretFrom(s.getenv, name); s.getenv(name) != "" || err != nil || value != used || s.getenv(name+"_FILE") == "" {
		return nil
	}
	return func() (string, error) { return secretFrom(s.getenv, name) }
}

var flagInError = regexp.MustCompile(`--[a-z][a-z0-9-]*`)

// namedError adds the name of the environment variable to an error about a flag.
func namedError(model *kong.Application, err error) error {
	text := err.Error()
	flag := flagInError.FindString(text)
	if flag == "" || strings.Contains(text, environmentPrefix) {
		return err
	}
	for _, command := range model.Leaves(false) {
		for _, f := range command.Flags {
			if f.Name == flag[2:] && isSetting(f) {
				return fmt.Errorf("%s (%s)", text, settingName(f.Name))
			}
		}
	}
	return err
}

// helpWithVariable returns the help text of a flag, with the name of its environment variable. For
// a flag with a placeholder, it also adds the default, because kong then shows only the
// placeholder.
func helpWithVariable(value *kong.Value) string {
	help := value.Help
	if value.Flag == nil {
		return help
	}
	if value.Flag.PlaceHolder != "" && value.HasDefault && value.Default != unset {
		help += " Default: " + value.Default + "."
	}
	if !isSetting(value.Flag) {
		return help
	}
	return help + " [" + settingName(value.Name) + "]"
}

// openLog opens the log of a node. The log folds repeated lines: within a period, it writes only the
// first of them. clock measures the period. The caller must close the log.
func (s *logSettings) openLog(stderr io.Writer, clock logging.Clock) *logging.Log {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.LogLevel)) // kong has checked the value
	options := &slog.HandlerOptions{Level: level}
	if s.LogFormat == "text" || (s.LogFormat == "auto" && isTerminal(stderr)) {
		return logging.New(stderr, func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, options) }, clock)
	}
	return logging.New(stderr, func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, options) }, clock)
}
