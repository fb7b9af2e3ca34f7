package proxytest

import (
	"bytes"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/prototext"
)

// The scenarios of envoyproxy/ratelimit are those of its folders test/integration and integration-test/scripts. They are
// played with its client client_cmd, on its service and on Headgate, with its configurations, which headgate import
// reads. The version is that of go.mod.

// Configurations in the module of envoyproxy/ratelimit.
const (
	ratelimitModule = "github.com/envoyproxy/ratelimit"
	integration     = "test/integration/runtime/current/ratelimit/config/"
	example         = "examples/ratelimit/config/example.yaml"
)

// A difference is what the answers of the two services differ by on purpose. docs/envoy.md has all of them.
type difference int

const (
	same difference = iota
	// shadowed: a limit with shadow_mode is in the answers of envoyproxy/ratelimit. A policy in shadow mode is not in
	// those of Headgate.
	shadowed
	// unlimited: envoyproxy/ratelimit answers the largest number as limit_remaining of a descriptor with unlimited, and
	// Headgate answers 0, as for every descriptor without a limit.
	unlimited
	// together: envoyproxy/ratelimit replaces limits of one descriptor by those of another one. A policy of Headgate replaces
	// others of the same descriptor, so Headgate receives the entries of all descriptors in one.
	together
	// apart: a limit with replaces, without together.
	apart
	// never: requests_per_unit is 0. envoyproxy/ratelimit answers the time until the window ends as duration_until_reset, and
	// Headgate answers 0, because no window allows the call.
	never
	// stopped: with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT, envoyproxy/ratelimit charges no descriptor of a call if one is
	// over its limit.
	stopped
)

// A scenario is a sequence of calls in one domain.
type scenario struct {
	name   string
	config string // "": no service has a configuration for the domain
	stops  bool   // STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT
	calls  []rateCall
}

// A rateCall is a call of client_cmd.
type rateCall struct {
	descriptors []string // such as key=value,key=value
	times       int      // 0 means 1
	differs     difference
}

const (
	bkthomps = "foo=my_foo,bar=bkthomps"
	account  = "category=account"
	fake     = "source_cluster=proxy,destination_cluster=fake"
)

// to is the destination of a request in the configuration of the examples.
func to(cluster string) string { return "source_cluster=proxy,destination_cluster=" + cluster }

var scenarios = []scenario{
	{name: "unknown-domain", calls: []rateCall{{descriptors: []string{"hello=world"}}}},
	{name: "basic", config: integration + "basic.yaml", calls: []rateCall{
		{descriptors: []string{"key1=foo"}},
		{descriptors: []string{"one_per_minute=foo"}, times: 3},
		{descriptors: []string{"other=foo"}},
	}},
	{name: "one-key", config: integration + "another.yaml", calls: []rateCall{{descriptors: []string{"key2=a"}, times: 25}}},
	{name: "two-keys", config: integration + "another.yaml", calls: []rateCall{{descriptors: []string{"key2=b", "key3=b"}, times: 15}}},
	{name: "two-keys-stop", config: integration + "another.yaml", stops: true, calls: []rateCall{
		{descriptors: []string{"key2=b", "key3=b"}, times: 10},
		{descriptors: []string{"key2=b", "key3=b"}, times: 5, differs: stopped},
	}},
	{name: "reset", config: integration + "another.yaml", calls: []rateCall{{descriptors: []string{"key4=durTest"}, times: 2}}},
	{name: "simple-get", config: example, calls: []rateCall{{descriptors: []string{"foo=test,baz=shady"}, differs: shadowed}}},
	{name: "trigger-ratelimit", config: example, calls: []rateCall{{descriptors: []string{"foo=pelle,baz=not-so-shady"}, times: 5}}},
	{name: "trigger-shadow-mode-key", config: example, calls: []rateCall{
		{descriptors: []string{"foo=pelle,baz=shady"}, times: 6, differs: shadowed},
	}},
	{name: "unspecified-value", config: example, calls: []rateCall{{descriptors: []string{"unspec=unspecified_value"}, times: 3}}},
	{name: "unlimited", config: example, calls: []rateCall{
		{descriptors: []string{"qux=any"}, times: 3, differs: unlimited},
		{descriptors: []string{"foo=any,bay=any"}, times: 3, differs: unlimited},
		{descriptors: []string{"foo=any"}, times: 3},
	}},
	{name: "replaces", config: example, calls: []rateCall{
		{descriptors: []string{"foo=bkthomps,bar=banned"}, differs: never},
		{descriptors: []string{"foo=bkthomps,bar=banned", to("mock")}, differs: together},
		{descriptors: []string{"foo=bkthomps,bar=banned", to("override")}, times: 3, differs: together},
		{descriptors: []string{bkthomps, to("bkthomps")}, times: 3, differs: together},
		{descriptors: []string{bkthomps, to("not_bkthomps")}, times: 2, differs: together},
		{descriptors: []string{bkthomps, to("bkthomps")}, differs: together},
		{descriptors: []string{bkthomps, fake, account}, times: 5, differs: together},
		{descriptors: []string{"foo=foo_2,bar=bkthomps"}, times: 2},
		{descriptors: []string{"foo=foo_3,bar=bar_3", fake}, times: 3, differs: together},
		{descriptors: []string{bkthomps, fake, account}, differs: together},
	}},
	{name: "replaces-apart", config: example, calls: []rateCall{
		{descriptors: []string{"foo=x,bar=banned", to("override")}, differs: apart},
	}},
}

// ratelimiters are the two services of a test.
type ratelimiters struct {
	client         string // the program client_cmd
	module         string // the folder of envoyproxy/ratelimit
	configs        string // the folder from which its services read their configurations
	envoy, stops   string // addresses of its services, without and with STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT
	headgate, rest string // addresses of Headgate
}

// startRatelimiters builds the programs of envoyproxy/ratelimit and starts all services, with a configuration for
// each try of each scenario.
func startRatelimiters(t *testing.T) *ratelimiters {
	t.Helper()
	server, err := url.Parse(os.Getenv("HEADGATE_TEST_REDIS_URL"))
	if err != nil || server.Host == "" {
		t.Fatal("HEADGATE_TEST_REDIS_URL has no Redis: run make test-proxies, which starts one")
	}
	password, _ := server.User.Password()
	folder := t.TempDir()
	run(t, "go", "build", "-o", folder+"/", "tool")
	l := &ratelimiters{
		client: filepath.Join(folder, "client_cmd"), configs: filepath.Join(folder, "runtime", "ratelimit", "config"),
		module: strings.TrimSpace(run(t, "go", "list", "-m", "-f", "{{.Dir}}", ratelimitModule)),
		envoy:  freeAddress(t), stops: freeAddress(t), headgate: freeAddress(t), rest: freeAddress(t),
	}
	if err := os.MkdirAll(l.configs, 0o700); err != nil {
		t.Fatal(err)
	}
	startHeadgate(t, l.rest, l.headgate, "HEADGATE_SAMPLE=false", "HEADGATE_BOOTSTRAP_KEY="+operatorKey, "HEADGATE_ENVOY_KEY="+operatorKey)
	for _, s := range scenarios {
		for try := range tries {
			if s.config != "" {
				l.configure(t, s.config, domainOf(s, try))
			}
		}
	}
	for address, stops := range map[string]string{l.envoy: "false", l.stops: "true"} {
		host, port, _ := strings.Cut(address, ":")
		_, http, _ := strings.Cut(freeAddress(t), ":")
		_, debug, _ := strings.Cut(freeAddress(t), ":")
		cmd := exec.Command(filepath.Join(folder, "service_cmd"))
		cmd.Env = append(os.Environ(),
			"GRPC_HOST="+host, "GRPC_PORT="+port, "HOST="+host, "PORT="+http, "DEBUG_HOST="+host, "DEBUG_PORT="+debug,
			"RUNTIME_ROOT="+filepath.Join(folder, "runtime"), "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false",
			"DISABLE_STATS=true", "LOG_LEVEL=error", "BACKEND_TYPE=redis", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+server.Host, "REDIS_AUTH="+password,
			"CACHE_KEY_PREFIX="+filepath.Base(folder)+stops, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT="+stops)
		cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
		start(t, address, cmd)
	}
	return l
}

// run runs a program and returns its standard output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "HEADGATE_TOKEN="+operatorKey)
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, messages.Bytes())
	}
	return out.String()
}

// tries is how often a scenario is played at most. It is played again if an hour ended meanwhile, because then a window
// of one call may not be that of the next one.
const tries = 2

// domainOf returns the domain in which a try of a scenario is played. Headgate has a tenant with this name.
func domainOf(s scenario, try int) string { return fmt.Sprintf("%s-%d", s.name, try) }

// configure gives all services the limits of a configuration under another domain. A minute would end during a scenario, so
// the limits have days instead of minutes.
func (l *ratelimiters) configure(t *testing.T, config, domain string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.module, config))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "domain: ") {
			line = "domain: " + domain + "\n"
		}
		lines = append(lines, strings.Replace(line, "unit: minute", "unit: day", 1))
	}
	written := filepath.Join(t.TempDir(), domain+".yaml") // written at once, because the services watch their folder
	if err := os.WriteFile(written, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	plans := filepath.Join(t.TempDir(), "plans.yaml")
	if err := os.WriteFile(plans, []byte(run(t, headgateBinary, "import", "envoy", written, "--tenant", domain)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, headgateBinary, "apply", "--url", "http://"+l.rest, "-f", plans)
	if err := os.Rename(written, filepath.Join(l.configs, domain+".yaml")); err != nil {
		t.Fatal(err)
	}
}

// ask sends a call with client_cmd.
func (l *ratelimiters) ask(t *testing.T, address, domain string, descriptors []string) *ratelimitv3.RateLimitResponse {
	t.Helper()
	args := []string{"-dial_string", address, "-domain", domain}
	for _, d := range descriptors {
		args = append(args, "-descriptors", d)
	}
	out := run(t, l.client, args...)
	_, text, _ := strings.Cut(out, "\nresponse: ")
	answer := new(ratelimitv3.RateLimitResponse)
	if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), answer); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return answer
}

// play plays a scenario and returns what differs without being a difference on purpose.
func (l *ratelimiters) play(t *testing.T, s scenario, domain string) (wrong []string) {
	t.Helper()
	for _, c := range s.calls {
		for i := range max(c.times, 1) {
			address, descriptors := l.envoy, c.descriptors
			if s.stops {
				address = l.stops
			}
			if c.differs == together {
				descriptors = []string{strings.Join(c.descriptors, ",")}
			}
			from := time.Now()
			envoy := l.ask(t, address, domain, c.descriptors)
			headgate := l.ask(t, l.headgate, domain, descriptors)
			for _, w := range compare(c.differs, envoy, headgate, from, time.Now()) {
				wrong = append(wrong, fmt.Sprintf("%v, call %d: %s\nenvoyproxy/ratelimit: %v\nHeadgate: %v", c.descriptors, i+1, w, envoy, headgate))
			}
		}
	}
	return wrong
}

// compare returns how the answers to one call, between two times, differ without being a difference on purpose.
func compare(differs difference, envoy, headgate *ratelimitv3.RateLimitResponse, from, to time.Time) (wrong []string) {
	codes := [2]ratelimitv3.RateLimitResponse_Code{envoy.GetOverallCode(), headgate.GetOverallCode()}
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	switch {
	case differs == apart && codes != [2]ratelimitv3.RateLimitResponse_Code{ok, over}:
		return []string{"replaces between descriptors is not a difference any more"}
	case differs == apart:
		return nil
	case codes[0] != codes[1]:
		return []string{"other code"}
	case differs == together:
		return nil
	case len(envoy.GetStatuses()) != len(headgate.GetStatuses()):
		return []string{"other number of statuses"}
	}
	for i, e := range envoy.GetStatuses() {
		h := headgate.GetStatuses()[i]
		if e.GetCode() != h.GetCode() {
			wrong = append(wrong, fmt.Sprintf("status %d: other code", i))
		}
		el, hl := e.GetCurrentLimit(), h.GetCurrentLimit()
		switch {
		case differs == shadowed:
			if el == nil || hl != nil {
				wrong = append(wrong, "shadow_mode is not a difference any more")
			}
			continue
		case differs == unlimited:
			if el != nil || hl != nil || e.GetLimitRemaining() != math.MaxUint32 || h.GetLimitRemaining() != 0 {
				wrong = append(wrong, "unlimited is not a difference any more")
			}
			continue
		case differs == stopped && i == 0:
			if e.GetLimitRemaining() != 10 || h.GetLimitRemaining() >= 10 {
				wrong = append(wrong, "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT is not a difference any more")
			}
		case e.GetLimitRemaining() != h.GetLimitRemaining():
			wrong = append(wrong, fmt.Sprintf("status %d: other limit_remaining", i))
		}
		if (el == nil) != (hl == nil) || el.GetRequestsPerUnit() != hl.GetRequestsPerUnit() || el.GetUnit() != hl.GetUnit() {
			wrong = append(wrong, fmt.Sprintf("status %d: other current_limit", i))
		}
		if differs == never && (e.GetDurationUntilReset().AsDuration() == 0 || h.GetDurationUntilReset().AsDuration() != 0) {
			wrong = append(wrong, "requests_per_unit 0 is not a difference any more")
		}
		if differs != never {
			wrong = append(wrong, compareResets(i, e, h, from, to)...)
		}
	}
	return wrong
}

// lengths are those of the windows of scenarios.
var lengths = map[ratelimitv3.RateLimitResponse_RateLimit_Unit]time.Duration{
	ratelimitv3.RateLimitResponse_RateLimit_HOUR: time.Hour, ratelimitv3.RateLimitResponse_RateLimit_DAY: 24 * time.Hour,
}

// compareResets returns which status has a duration_until_reset that is not the time until the end of the window, at
// some time between two others. envoyproxy/ratelimit answers whole seconds. A window of a second may end between the two.
func compareResets(i int, envoy, headgate *ratelimitv3.RateLimitResponse_DescriptorStatus, from, to time.Time) (wrong []string) {
	length, ok := lengths[envoy.GetCurrentLimit().GetUnit()]
	if !ok {
		return nil
	}
	end := from.UTC().Truncate(length).Add(length)
	for name, s := range map[string]*ratelimitv3.RateLimitResponse_DescriptorStatus{"envoyproxy/ratelimit": envoy, "Headgate": headgate} {
		if d := s.GetDurationUntilReset().AsDuration(); d < end.Sub(to)-time.Second || d > end.Sub(from)+time.Second {
			wrong = append(wrong, fmt.Sprintf("status %d: duration_until_reset of %s is %v, but the window ends in %v", i, name, d, end.Sub(to)))
		}
	}
	return wrong
}

// client_cmd gets the same decisions from both services.
func TestScenariosOfEnvoyRatelimit(t *testing.T) {
	t.Parallel()
	l := startRatelimiters(t)
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			for try := range tries {
				from := time.Now()
				wrong := l.play(t, s, domainOf(s, try))
				if from.Truncate(time.Hour) != time.Now().Truncate(time.Hour) && try < tries-1 {
					continue
				}
				for _, w := range wrong {
					t.Error(w)
				}
				return
			}
		})
	}
	t.Run("reload", l.testReload)
	t.Run("share-threshold", l.testShareThreshold)
}

// testReload plays the scenario that adds a configuration to the running services, and takes it away.
func (l *ratelimiters) testReload(t *testing.T) {
	const domain = "reload"
	block := []string{"block=foo"}
	await := func(want ratelimitv3.RateLimitResponse_Code) {
		t.Helper()
		for _, address := range []string{l.envoy, l.headgate} {
			for end := time.Now().Add(deadline); l.ask(t, address, domain, block).GetOverallCode() != want; <-time.After(50 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s does not answer %v", address, want)
				}
			}
		}
	}
	reload := scenario{name: domain, calls: []rateCall{{descriptors: block}, {descriptors: []string{"key1=foo"}}, {descriptors: []string{"one_per_minute=foo"}, times: 2}}}
	check := func() {
		t.Helper()
		for _, w := range l.play(t, reload, domain) {
			t.Error(w)
		}
	}
	check()
	l.configure(t, filepath.Join(filepath.Dir(filepath.Dir(integration)), "reload.yaml"), domain)
	await(ratelimitv3.RateLimitResponse_OVER_LIMIT)
	check()
	if err := os.Remove(filepath.Join(l.configs, domain+".yaml")); err != nil {
		t.Fatal(err)
	}
	run(t, headgateBinary, "tenants", "delete", "--url", "http://"+l.rest, domain, "--yes")
	await(ratelimitv3.RateLimitResponse_OK)
	check()
}

// testShareThreshold shows that headgate import leaves out the scenario of share_threshold, and says so.
func (l *ratelimiters) testShareThreshold(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), headgateBinary, "import", "envoy", filepath.Join(l.module, integration, "share_threshold.yaml")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "value files/*: a policy compares whole values") {
		t.Errorf("a value with * is not a difference any more: %v\n%s", err, out)
	}
}
