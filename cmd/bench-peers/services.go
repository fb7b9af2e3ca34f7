package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/deploy/recipes"
	"github.com/headgate/headgate/internal/load"
)

// The limit that all services enforce for each user: quota units per window. It is so high that no
// check of the benchmark is denied. users is the number of users.
const (
	quota      = 1_000_000
	window     = time.Hour
	unitMicros = int64(window/time.Microsecond) / quota
	users      = 10_000
	batchSize  = 32
)

// envoyPackage is the package of envoyproxy/ratelimit with the version that is measured.
const envoyPackage = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"

// Names of the services in the tables of the result.
const (
	noop     = "no-op echo JSON"
	exactTCP = "headgate, exact on Redis"
	exactUDS = "headgate, exact on Redis, unix socket"
	leased   = "headgate, leased"
	embedded = "headgate, embedded"
	direct   = "EVALSHA for each request"
	envoy    = "envoyproxy/ratelimit /json"
)

// A service is a contender that answers HTTP requests.
type service struct {
	name    string
	address string
	grpc    string // address of the rate limit service of Envoy; "" if it has none
	resp    string // address of the port for RESP; "" if it has none
	pid     int
	behind  *service // the Headgate node that a gateway asks; nil if the service is not a gateway
	single  load.Request
	batch   *load.Request // nil if the service has no batch requests
	mallocs bool          // set if the service reports its allocations at /metrics
	key     string        // API key of a tenant
	// operator is an API key of the operator. It is set only for a Headgate node.
	operator string
}

func (s *service) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", s.address)
}

// checkBody is the JSON of one check. A request with a batch contains it several times.
const checkBody = `{"method":"GET","path":"/api/things/42","attributes":{"user":"u` + load.KeyPlace + `","ip":"203.0.113.9"}}`

func batchBody() string {
	return `{"checks":[` + strings.Join(slices.Repeat([]string{checkBody}, batchSize), ",") + `]}`
}

// useHeadgateAPI sets the requests of a service that has the API of Headgate. key is an API key of
// a tenant.
func (s *service) useHeadgateAPI(key string) {
	s.key = key
	header := "Authorization: Bearer " + key
	s.single = load.NewRequest(s.address, "/v1/check", checkBody, users, header)
	batch := load.NewRequest(s.address, "/v1/check/batch", batchBody(), users, header)
	s.batch, s.mallocs = &batch, true
}

// services builds and starts all services that the run measures.
func (b *bench) services(ctx context.Context) error {
	headgate := filepath.Join(b.folder, "headgate")
	if err := build(ctx, []string{"CGO_ENABLED=0"}, "build", "-o", headgate, "./cmd/server"); err != nil {
		return err
	}
	nodes := []struct{ name, redis, prefix, policy string }{
		{embedded, "", "", ""},
		{exactTCP, b.redis.url, "tcp:", ""},
		{exactUDS, b.redis.unixURL, "unix:", ""},
		{leased, b.redis.url, "leased:", `"consistency": "leased",`},
	}
	if b.onlyWays() {
		nodes = nodes[:1]
	} else if err := build(ctx, []string{"GOBIN=" + b.folder, "CGO_ENABLED=0"}, "install", envoyPackage); err != nil {
		return fmt.Errorf("envoyproxy/ratelimit comes from the Go module proxy, which must be reachable: %w", err)
	}
	for _, node := range nodes {
		s, err := b.startHeadgate(ctx, headgate, node.name, node.redis, node.prefix, node.policy)
		if errors.Is(err, errNotBuilt) {
			progress("%s: %v", node.name, err)
			b.results.notBuilt = append(b.results.notBuilt, node.name)
			continue
		}
		if err != nil {
			return err
		}
		b.results.services = append(b.results.services, s)
	}
	if err := b.startOwn(ctx); err != nil || b.onlyWays() {
		return err
	}
	s, err := b.startEnvoy()
	if err != nil {
		return err
	}
	b.results.services = append(b.results.services, s)
	return nil
}

// onlyWays reports whether the run measures only the group ways, which needs no services except the
// embedded Headgate and noop.
func (b *bench) onlyWays() bool { return len(b.groups) == 1 && b.has(groupWays) }

func (b *bench) service(name string) *service {
	for _, s := range b.results.services {
		if s.name == name {
			return s
		}
	}
	return nil
}

var (
	servesAt    = regexp.MustCompile(`serves (?:http://)?(\S+)`)
	operatorKey = regexp.MustCompile(`operator key +(\S+)`)
	// errNotBuilt is the error if the build of Headgate does not have leased policies.
	errNotBuilt = errors.New("not built")
)

// startHeadgate starts a Headgate node. It creates a tenant with an API key and a plan with one
// policy.
func (b *bench) startHeadgate(ctx context.Context, program, name, redisURL, prefix, policy string) (*service, error) {
	database, err := os.MkdirTemp(b.folder, "database-")
	if err != nil {
		return nil, err
	}
	ports, err := recipes.FreePorts(2)
	if err != nil {
		return nil, err
	}
	s := &service{name: name, grpc: fmt.Sprintf("127.0.0.1:%d", ports[0]), resp: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	env := []string{
		"HEADGATE_ADDR=127.0.0.1:0", "HEADGATE_ENVOY_ADDR=" + s.grpc, "HEADGATE_RESP_ADDR=" + s.resp,
		"HEADGATE_TRUSTED_PROXIES=127.0.0.1/32", "HEADGATE_LOG_LEVEL=error", "HEADGATE_METRICS_PUBLIC=true",
		"HEADGATE_DATABASE_URL=sqlite://" + database + "/headgate.db",
	}
	if redisURL != "" {
		env = append(env, "HEADGATE_REDIS_URL="+redisURL, "HEADGATE_REDIS_PREFIX="+prefix)
	}
	c, err := b.start(name, env, program, "serve")
	if err != nil {
		return nil, err
	}
	s.pid = c.pid()
	if s.address, err = c.await(servesAt); err != nil {
		return nil, err
	}
	operator, err := c.await(operatorKey)
	if err != nil {
		return nil, err
	}
	s.operator = operator
	key, err := s.prepare(ctx, "bench", fmt.Sprintf(
		`{"slug": "per-user", "count_by": ["user"], %s "limits": [{"algorithm": "token_bucket", "quota": %d, "window": "1h"}]}`, policy, quota))
	s.useHeadgateAPI(key)
	return s, err
}

// prepare publishes a plan with a policy whose limit denies no check of the benchmark. It creates a
// tenant with this plan and returns an API key of the tenant. slug is the slug of both the plan and
// the tenant.
func (s *service) prepare(ctx context.Context, slug, policy string) (key string, err error) {
	plan := fmt.Sprintf(`{"slug": %q, "draft": {"name": "bench", "policies": [%s]}}`, slug, policy)
	status, etag, answer, err := s.call(ctx, s.operator, "/v1/plans", plan, "")
	if err == nil && status >= 400 && strings.Contains(answer, "consistency") {
		return "", fmt.Errorf("%w: %s", errNotBuilt, answer)
	}
	if err = wants(status, answer, err); err != nil {
		return "", err
	}
	status, _, answer, err = s.call(ctx, s.operator, "/v1/plans/"+slug+"/publish", "", etag)
	if err = wants(status, answer, err); err != nil {
		return "", err
	}
	tenant := fmt.Sprintf(`{"slug": %q, "tenant": {"name": "bench", "plan": %q}}`, slug, slug)
	status, _, answer, err = s.call(ctx, s.operator, "/v1/tenants", tenant, "")
	if err = wants(status, answer, err); err != nil {
		return "", err
	}
	status, _, answer, err = s.call(ctx, s.operator, "/v1/tenants/"+slug+"/keys", `{"name": "bench", "scopes": ["check"]}`, "")
	if err = wants(status, answer, err); err != nil {
		return "", err
	}
	var made struct{ Token string }
	err = json.Unmarshal([]byte(answer), &made)
	return made.Token, err
}

func wants(status int, answer string, err error) error {
	if err == nil && status >= 300 {
		err = fmt.Errorf("headgate answered %d: %s", status, answer)
	}
	return err
}

// call sends a POST request to the API of the service, to set it up before the measurement.
func (s *service) call(ctx context.Context, key, path, body, ifMatch string) (status int, etag, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		return 0, "", "", err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	if ifMatch != "" {
		r.Header.Set("If-Match", ifMatch)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header.Get("ETag"), string(text), err
}

// startOwn starts the services noop and direct. They answer with recorded responses of Headgate.
// Their garbage collector has the same settings as the garbage collector of Headgate.
func (b *bench) startOwn(ctx context.Context) error {
	like := b.service(embedded)
	for name, request := range map[string]struct{ path, body string }{
		"single": {"/v1/check", checkBody}, "batch": {"/v1/check/batch", batchBody()},
	} {
		body := strings.ReplaceAll(request.body, load.KeyPlace, "00000000")
		status, _, answer, err := like.call(ctx, like.key, request.path, body, "")
		if err = wants(status, answer, err); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.folder, name), []byte(answer), 0o600); err != nil {
			return err
		}
	}
	gogc, err := like.metric(ctx, "go_gc_gogc_percent")
	if err != nil {
		return err
	}
	b.results.gogc = strconv.FormatFloat(gogc, 'f', -1, 64)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	for _, own := range []struct{ name, redis string }{{noop, ""}, {direct, b.redis.url}} {
		if own.name == direct && b.onlyWays() {
			continue
		}
		c, err := b.start(own.name, []string{"GOGC=" + b.results.gogc}, program, "serve", "-answers", b.folder, "-redis", own.redis)
		if err != nil {
			return err
		}
		s := &service{name: own.name, pid: c.pid()}
		if s.address, err = c.await(servesAt); err != nil {
			return err
		}
		s.useHeadgateAPI(like.key)
		b.results.services = append(b.results.services, s)
	}
	return nil
}

// metric reads the current value of a metric from /metrics of the service.
func (s *service) metric(ctx context.Context, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.address+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			return strconv.ParseFloat(string(bytes.TrimSpace(value)), 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", s.name, name)
}

// startEnvoy starts envoyproxy/ratelimit with one fixed-window limit for each user. It turns Statsd
// off. All other settings have their defaults.
func (b *bench) startEnvoy() (*service, error) {
	config := filepath.Join(b.folder, "runtime", "ratelimit", "config")
	if err := os.MkdirAll(config, 0o700); err != nil {
		return nil, err
	}
	domain := "domain: bench\ndescriptors:\n  - key: user\n    rate_limit:\n" +
		"      unit: hour\n      requests_per_unit: " + strconv.Itoa(quota) + "\n"
	if err := os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(domain), 0o600); err != nil {
		return nil, err
	}
	ports, err := recipes.FreePorts(3)
	if err != nil {
		return nil, err
	}
	c, err := b.start(envoy, []string{
		"HOST=127.0.0.1", "GRPC_HOST=127.0.0.1", "DEBUG_HOST=127.0.0.1",
		fmt.Sprintf("PORT=%d", ports[0]), fmt.Sprintf("GRPC_PORT=%d", ports[1]), fmt.Sprintf("DEBUG_PORT=%d", ports[2]),
		"RUNTIME_ROOT=" + filepath.Join(b.folder, "runtime"), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
		"USE_STATSD=false", "LOG_LEVEL=error", "BACKEND_TYPE=redis",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + b.redis.address, "REDIS_AUTH=" + b.redis.password,
	}, filepath.Join(b.folder, "service_cmd"))
	if err != nil {
		return nil, err
	}
	s := &service{name: envoy, pid: c.pid(), address: fmt.Sprintf("127.0.0.1:%d", ports[0]), grpc: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	body := `{"domain":"bench","descriptors":[{"entries":[{"key":"user","value":"u` + load.KeyPlace + `"}]}]}`
	s.single = load.NewRequest(s.address, "/json", body, users)
	return s, errors.Join(c.listens(s.address), c.listens(s.grpc))
}
