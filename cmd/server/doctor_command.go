package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/headgate/headgate/api/envoy"
	"github.com/headgate/headgate/api/resp"
	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/cli"
	"github.com/headgate/headgate/internal/store"
)

// doctorCommand is headgate doctor. It reads the settings of headgate serve, and checks the files,
// servers and addresses that they name. It writes nothing.
type doctorCommand struct {
	serveSettings
	cli.Output
	Wait time.Duration `default:"5s" setting:"false" help:"How long each check may wait for an answer."`
}

// Help returns the text that --help shows after the flags.
func (*doctorCommand) Help() string {
	return "Checks the installation that the settings of headgate serve describe, on the machine and with the user of the node. " +
		"It changes nothing. Ends with 0 if there is no error; warnings do not count."
}

// The statuses of a finding.
const (
	statusOK      = "ok"
	statusWarning = "warning"
	statusError   = "error"
)

// A finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"` // how to fix the fault; empty if there is none
}

// An examination collects findings.
type examination struct {
	*doctorCommand
	findings []finding
}

func (e *examination) ok(check, format string, args ...any) {
	e.findings = append(e.findings, finding{check, statusOK, fmt.Sprintf(format, args...), ""})
}

func (e *examination) warn(check, advice, format string, args ...any) {
	e.findings = append(e.findings, finding{check, statusWarning, fmt.Sprintf(format, args...), advice})
}

func (e *examination) fail(check, advice, format string, args ...any) {
	e.findings = append(e.findings, finding{check, statusError, fmt.Sprintf(format, args...), advice})
}

// Run prints the findings.
func (d *doctorCommand) Run(ctx context.Context, p program, parser *kong.Kong, t cli.Terminal) error {
	e := &examination{doctorCommand: d}
	e.settings(p, parser.Model)
	e.files()
	e.database(ctx)
	e.redis(ctx)
	e.proxies()
	e.ports(ctx)
	e.publicURL(ctx)
	err := d.Table(t, map[string]any{"findings": e.findings}, "findings",
		cli.Column{Title: "CHECK", Path: "check"}, cli.Column{Title: "STATUS", Path: "status"},
		cli.Column{Title: "FOUND", Path: "detail"}, cli.Column{Title: "WHAT TO DO", Path: "advice"})
	failed := 0
	for _, f := range e.findings {
		if f.Status == statusError {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = &cli.Error{Code: cli.ExitFindings, Err: fmt.Errorf("errors: %d", failed)}
	}
	return err
}

// settings checks the environment variables.
func (e *examination) settings(p program, model *kong.Application) {
	if err := unknownSettings(model, p.environ); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			e.fail("settings", "Correct or unset the variable. No command starts with it.", "%s", line)
		}
	}
	if err := e.validate(p.getenv); err != nil {
		e.fail("settings", "Correct the setting. headgate serve --help describes it.", "%s", err)
	}
	if len(e.findings) == 0 {
		e.ok("settings", "valid")
	}
}

// files checks the files with secrets, the folder of the snapshot, and the number of open files.
func (e *examination) files() {
	open := e.openSecrets()
	for _, f := range open {
		e.fail("secrets", "Run chmod 600 "+f.file+".", "other users of this machine may read %s of %s (mode %s)", f.file, f.setting, f.mode)
	}
	if len(open) == 0 {
		e.ok("secrets", "no file with a secret is readable for other users")
	}
	if folder := filepath.Dir(e.SnapshotFile); e.production() && e.SnapshotFile != "off" {
		if err := writable(folder); err != nil {
			e.fail("snapshot-file", "Create the folder and make this user its owner, or set "+settingName("snapshot-file")+"=off.", "%s", err)
		} else {
			e.ok("snapshot-file", "%s can be written", folder)
		}
	}
	files := openFiles()
	if limits := e.connectionLimits(files); limits.Total < e.MaxConnections {
		e.warn("open-files", "Raise the limit of open files (ulimit -n, LimitNOFILE), or lower "+settingName("max-connections")+".",
			"the process may open %d files, which is enough for %d of %d connections", files, limits.Total, e.MaxConnections)
	} else {
		e.ok("open-files", "the process may open %d files", files)
	}
}

// writable reports whether this process can create a file in a folder or in the closest folder
// above it that exists.
func writable(folder string) error {
	for {
		info, err := os.Stat(folder)
		if errors.Is(err, os.ErrNotExist) && filepath.Dir(folder) != folder {
			folder = filepath.Dir(folder)
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return fmt.Errorf("%s is not a folder", folder)
		}
		f, err := os.CreateTemp(folder, ".headgate-doctor-")
		if err != nil {
			return err
		}
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}
}

// database checks the database, its schema, and its clock.
func (e *examination) database(ctx context.Context) {
	if validDatabaseURL(e.DatabaseURL) != nil {
		return // the method settings has reported this error
	}
	if !e.production() {
		path, err := store.SQLitePath(e.DatabaseURL)
		if err == nil {
			_, err = os.Stat(path)
		}
		if errors.Is(err, os.ErrNotExist) {
			if err := writable(filepath.Dir(path)); err != nil {
				e.fail("database", "Create the folder and make this user its owner.", "%s", err)
			} else {
				e.ok("database", "%s does not exist yet; headgate serve creates it", path)
			}
			return
		}
		if err != nil {
			e.fail("database", "Make this user the owner of the file and its folder.", "%s", err)
			return
		}
	}
	found, err := e.examineDatabase(ctx)
	if err != nil {
		e.fail("database", "Check the address, the user, the password and the network in "+settingName("database-url")+".", "%s", err)
		return
	}
	kind := e.databaseKind() + " " + found.Version
	switch schema := found.Schema; {
	case schema.Dirty:
		e.fail("database", "Run headgate migrate status, and then headgate migrate force VERSION.",
			"%s: migration %d was cut off", kind, schema.Version)
	case schema.Version > schema.Latest:
		e.fail("database", "Run a newer headgate, or restore the backup from before the upgrade.",
			"%s: the schema has version %d, and this headgate supports up to %d", kind, schema.Version, schema.Latest)
	case schema.Version < schema.Latest:
		e.warn("database", "Make a backup. headgate serve or headgate migrate up migrates the schema.",
			"%s: the schema has version %d of %d", kind, schema.Version, schema.Latest)
	default:
		e.ok("database", "%s, schema version %d", kind, schema.Version)
	}
	if e.production() {
		e.clock("database-clock", "database", found.Ahead, found.RoundTrip)
	} else if e.Nodes > 1 {
		e.fail("nodes", "Use Postgres ("+settingName("database-url")+") for several nodes.", "%d nodes cannot share a SQLite file", e.Nodes)
	}
}

func (e *examination) examineDatabase(ctx context.Context) (found store.Examination, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.Wait)
	defer cancel()
	st, err := store.Open(ctx, store.Config{URL: e.DatabaseURL, Timeout: e.Wait})
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return st.Examine(ctx)
}

// mostSkew is the largest difference between two clocks that doctor accepts. doctor also allows for
// the time of the round trip.
const mostSkew = time.Second

// clock checks the difference between the clock of a server and the clock of this machine.
func (e *examination) clock(check, server string, ahead, roundTrip time.Duration) {
	if ahead.Abs() > mostSkew+roundTrip {
		e.warn(check, "Synchronize both clocks (chrony, systemd-timesyncd).", "the clock of the %s is %s ahead of the clock of this machine",
			server, ahead.Round(time.Millisecond))
		return
	}
	e.ok(check, "the clock of the %s differs by less than %s", server, (mostSkew + roundTrip).Round(time.Millisecond))
}

// redis checks the Redis server.
func (e *examination) redis(ctx context.Context) {
	if e.RedisURL == "" {
		if e.Nodes > 1 || e.production() {
			e.warn("redis", "Set "+settingName("redis-url")+" if several nodes share the limits.", "counters are in the memory of each node")
		} else {
			e.ok("redis", "not used: counters are in the memory of the node")
		}
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.Wait)
	defer cancel()
	found, err := redis.Examine(ctx, redis.Config{URL: e.RedisURL, Prefix: e.RedisPrefix, Timeout: e.Wait})
	if err != nil {
		e.fail("redis", "Check the address, the user, the password and the network in "+settingName("redis-url")+".", "%s", err)
		return
	}
	switch {
	case found.TooOld:
		e.fail("redis", "Upgrade to Redis 6.2 or Valkey 7.2.", "the version %s is not supported", found.Version)
	case found.OtherFormat:
		e.fail("redis", "Set another "+settingName("redis-prefix")+", or delete the keys while no node runs.",
			"the keys below %s have another format", e.RedisPrefix)
	case found.InCluster && found.Masters == 0:
		e.fail("redis", "Add ?cluster=true to "+settingName("redis-url")+".", "the server is part of a cluster")
	case found.Masters > 0:
		e.ok("redis", "version %s, a cluster of %d masters and %d replicas", found.Version, found.Masters, found.Replicas)
		e.redisCluster(&found)
	case found.Sentinels:
		e.ok("redis", "version %s, named by Sentinels", found.Version)
	default:
		e.ok("redis", "version %s", found.Version)
	}
	const config = "Set maxmemory-policy noeviction in redis.conf or the parameter group."
	switch {
	case found.MaxMemoryPolicy == "noeviction":
		e.ok("redis-memory", "maxmemory-policy is noeviction")
	case found.MaxMemoryPolicy == "":
		e.warn("redis-memory", "Allow CONFIG GET for this user, or check that maxmemory-policy is noeviction.", "maxmemory-policy cannot be read")
	case e.RedisStrict:
		e.fail("redis-memory", config, "maxmemory-policy is %s, and %s is set", found.MaxMemoryPolicy, settingName("redis-strict"))
	default:
		e.warn("redis-memory", config,
			"maxmemory-policy is %s: Redis may evict counters, and requests above the quota then pass", found.MaxMemoryPolicy)
	}
	e.clock("redis-clock", "Redis server", found.Ahead, found.RoundTrip)
}

// redisCluster checks what happens when a master of the cluster fails.
func (e *examination) redisCluster(found *redis.Examination) {
	switch {
	case found.Replicas < found.Masters:
		e.warn("redis-cluster", "Give each master a replica.",
			"%d masters have %d replicas: nothing replaces a master that fails", found.Masters, found.Replicas)
	case found.WholeOnly:
		e.warn("redis-cluster", "Set cluster-require-full-coverage no in redis.conf or the parameter group.",
			"while a slot has no server, all servers refuse calls, and the policies' on_failure decides all checks")
	default:
		e.ok("redis-cluster", "each master may be replaced, and the others serve their slots meanwhile")
	}
}

// proxies checks the setting trusted-proxies: the networks of the proxies that may name the
// address of a client.
func (e *examination) proxies() {
	const check = "trusted-proxies"
	networks, err := parseNetworks(e.TrustedProxies)
	if err != nil {
		return // the method settings has reported this error
	}
	for _, n := range networks {
		if ones, _ := n.Mask.Size(); ones == 0 {
			e.fail(check, "Name the networks of your load balancers only.", "%s trusts every client, so that a client can choose its address", n)
			return
		}
	}
	if len(networks) == 0 && strings.HasPrefix(e.PublicURL, "https:") && e.TLSCertFile == "" {
		e.warn(check, "Set "+settingName("trusted-proxies")+" to the network of the proxy that ends TLS.",
			"all clients have the address of the proxy: one wrong password limits the sign-in of all people")
		return
	}
	switch len(networks) {
	case 0:
		e.ok(check, "none: the address of a client is that of its connection, and forward-auth is off; "+
			"behind a proxy or gateway, set %s to its network", settingName(check))
	case 1:
		e.ok(check, "1 network: %s", networks[0])
	default:
		e.ok(check, "%d networks", len(networks))
	}
}

// ports checks the address of each listener.
func (e *examination) ports(ctx context.Context) {
	type listener struct{ setting, addr string }
	var earlier []listener
	for _, l := range []listener{{"addr", e.Addr}, {"metrics-addr", e.MetricsAddr}, {"resp-addr", e.RESPAddr}, {"envoy-addr", e.EnvoyAddr}} {
		if l.addr == "" {
			continue
		}
		i := slices.IndexFunc(earlier, func(other listener) bool { return samePort(l.addr, other.addr) })
		if i >= 0 {
			e.fail(l.setting, "Set another port.", "%s has the port of %s", l.addr, settingName(earlier[i].setting))
			continue
		}
		earlier = append(earlier, l)
		e.port(ctx, l.setting, l.addr)
	}
}

// samePort reports whether two listener addresses cannot be open at the same time. Port 0 stands
// for any free port.
func samePort(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	every := func(host string) bool { return host == "" || net.ParseIP(host).IsUnspecified() }
	return errA == nil && errB == nil && portA == portB && portA != "0" && (hostA == hostB || every(hostA) || every(hostB))
}

// port checks one listener address. The address is correct if this process can listen at it, or if
// a node already serves the protocol of the setting at it.
func (e *examination) port(ctx context.Context, setting, addr string) {
	if validAddr(addr) != nil {
		return // the method settings has reported this error
	}
	listener, err := net.Listen("tcp", addr)
	if err == nil {
		_ = listener.Close()
		e.ok(setting, "%s is free", addr)
		return
	}
	host, port, _ := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	if failure := e.serves(ctx, setting, net.JoinHostPort(host, port)); failure != nil {
		e.fail(setting, "Stop the other program, or set another "+settingName(setting)+".", "%s, and no node serves at it: %s", err, failure)
		return
	}
	e.ok(setting, "%s is in use, and a node serves at it", addr)
}

// serves returns an error if no node serves the protocol of a setting at addr.
func (e *examination) serves(ctx context.Context, setting, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, e.Wait)
	defer cancel()
	scheme, path := "http", "/livez"
	var secure *tls.Config
	if e.TLSCertFile != "" {
		scheme = "https"
		// The certificate of a local address has the public name. Nothing secret is sent.
		secure = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	}
	switch setting {
	case "resp-addr":
		return resp.Probe(ctx, addr, secure)
	case "envoy-addr":
		return envoy.Probe(ctx, addr, secure)
	case "metrics-addr":
		scheme, path = "http", "/metrics"
	}
	_, err := e.get(ctx, scheme+"://"+addr+path)
	return err
}

// publicURL checks that a node answers at the public URL, and compares the node's clock with the
// clock of this machine.
func (e *examination) publicURL(ctx context.Context) {
	if e.PublicURL == "" || validPublicURL(e.PublicURL) != nil {
		return
	}
	sent := time.Now()
	header, err := e.get(ctx, strings.TrimRight(e.PublicURL, "/")+"/livez")
	if err != nil {
		e.warn("public-url", "Start the node, or check DNS, the certificate and the proxy.", "%s", err)
		return
	}
	e.ok("public-url", "a node answers at %s", e.PublicURL)
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		roundTrip := time.Since(sent)
		e.clock("server-clock", "server", date.Sub(sent.Add(roundTrip/2)), roundTrip+time.Second) // Date has whole seconds
	}
}

// get requests a page of a node. It accepts the status 401, because doctor has no API key.
func (e *examination) get(ctx context.Context, url string) (http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Wait)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		// The certificate of a local address has the public name. Nothing secret is sent.
		InsecureSkipVerify: !strings.HasPrefix(url, strings.TrimRight(e.PublicURL, "/")+"/") || e.PublicURL == "", //nolint:gosec // see above
	}}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusUnauthorized {
		return nil, fmt.Errorf("%s answered %s", url, response.Status)
	}
	return response.Header, nil
}
