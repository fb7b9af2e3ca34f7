//go:build faults

package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/servertest"
)

// timeFaults are goals of time that need no fault of another server. Their figures are in the
// table and fail nothing, but what they admit and answer does.
var timeFaults = []faultScenario{
	{goal: "F-E5", fault: "embedded: each fsync takes 2 s longer (strace), with checks and edits", run: slowSync},
	{goal: "L-3", fault: "three nodes, Redis, and the load on two processors: 3,000 checks/s", run: threeNodes},
	{goal: "L-4", fault: "1 million live keys in Redis, compared with 1,000: 1,000 checks/s on each", run: millionKeys},
	{
		goal: "B-8", fault: "HTTP/2 without TLS: reset streams, CONTINUATION floods, closed windows, large header tables (8 connections)",
		direct: true, exact: true, settings: map[string]string{"HEADGATE_H2C": "true"}, begin: attackHTTP2,
	},
	{goal: "A-2", fault: "1,000 requests for keys of another tenant, and 1,000 for random IDs", run: foreignTimes},
	{goal: "A-6", fault: "1,000 checks/s with wrong keys", direct: true, exact: true, begin: wrongKeys},
	{goal: "D-7", fault: "batches of 1,000 checks with 32 charges each", run: largestBatches},
	{goal: "A-7", fault: "20,000 tries of keys, half of them with the first 40 characters of a valid one", run: prefixTimes},
}

// runLoad sends checks of the tenant "load" to nodes in turn, at a rate, for a number of users.
func runLoad(t *testing.T, nodes []*process, rate float64, users int, lasts time.Duration) *load.Result {
	t.Helper()
	var next atomic.Int64
	host := func() string { return strings.TrimPrefix(nodes[next.Add(1)%int64(len(nodes))].origin, "http://") }
	body := `{"tenant": "load", "attributes": {"user": "u` + load.KeyPlace + `"}}`
	got, err := load.Run(t.Context(), load.Config{
		Dial:    func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", host()) },
		Request: load.NewRequest("headgate", "/v1/check", body, users, "Authorization: Bearer "+bootstrap), Connections: 48, Rate: rate, Duration: lasts,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.Err != nil || got.Allowed != got.Requests {
		t.Errorf("%d requests, %d allowed: %v, %v", got.Requests, got.Allowed, got.Statuses, got.Err)
	}
	return got
}

// publishLoad makes the tenant of runLoad. The counters live for a day: a bucket with so large a quota would be
// unused again, and expire, after a few milliseconds.
func publishLoad(f *cluster) {
	f.publish("load", `[{"slug": "all", "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "window": "1d", "quota": 1000000}]}]`)
	f.tenant("load", "load")
}

func threeNodes(t *testing.T) (row faultRow) {
	f := startCluster(t, 3, map[string]string{"HEADGATE_LIMITER_TIMEOUT": "", "HEADGATE_REDIS_URL": servertest.StartRedis(t).Prefer().URL()})
	publishLoad(f)
	runLoad(t, f.nodes, 3000, 1000, 2*time.Second)
	got := runLoad(t, f.nodes, 3000, 1000, 10*time.Second)
	row.p99 = got.Latency.Quantile(0.99)
	row.measure = fmt.Sprintf("%.0f checks/s, p50 %.1f ms, p99 %.1f ms, %d degraded, %d not sent in time", float64(got.Requests)/got.Elapsed.Seconds(),
		milli(got.Latency.Quantile(0.5)), milli(row.p99), got.Degraded, got.Unsent)
	if row.p99 > 20*time.Millisecond || got.Unsent > 0 {
		row.failed = append(row.failed, "p99 of 20 ms")
	}
	if got.Degraded > got.Requests/100 {
		t.Errorf("%d of %d checks are degraded", got.Degraded, got.Requests)
	}
	return row
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// millionKeys compares two nodes, each with a Redis, in turns.
func millionKeys(t *testing.T) (row faultRow) {
	const many, few, rounds = 1_000_000, 1000, 5
	var nodes []*cluster
	for _, keys := range []int{few, many} {
		server := servertest.StartRedis(t).Prefer()
		f := startCluster(t, 1, map[string]string{
			"HEADGATE_LIMITER_TIMEOUT": "", "HEADGATE_REDIS_URL": server.URL(), "HEADGATE_MAX_KEYS": "4000000", "HEADGATE_REDIS_PREFIX": "hg:",
		})
		publishLoad(f)
		for from := 0; from < keys; from += 1000 {
			var batch strings.Builder
			for user := from; user < from+1000; user++ {
				fmt.Fprintf(&batch, `,{"tenant": "load", "attributes": {"user": "u%08d"}}`, user)
			}
			call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check/batch", `{"checks": [`+batch.String()[1:]+`]}`).want(t, http.StatusOK)
		}
		if n := redisClient(t, server.URL()).DBSize(t.Context()).Val(); n < int64(keys) {
			t.Fatalf("Redis has %d keys, want %d", n, keys)
		}
		nodes = append(nodes, f)
	}
	var times [2][]time.Duration
	var ratios []float64
	for range rounds {
		for i, users := range []int{few, many} {
			got := runLoad(t, nodes[i].nodes, 1000, users, 4*time.Second)
			times[i] = append(times[i], got.Latency.Quantile(0.99))
		}
		ratios = append(ratios, float64(times[1][len(times[1])-1])/float64(times[0][len(times[0])-1]))
	}
	for i := range times {
		slices.Sort(times[i])
	}
	slices.Sort(ratios)
	row.healthy, row.p99 = times[0][rounds/2], times[1][rounds/2]
	row.measure = fmt.Sprintf("p99 with 1,000 keys %.1f ms, with 1,000,000 keys %.1f ms (medians of %d rounds in turns); ratio %.2f (%.2f to %.2f)",
		milli(row.healthy), milli(row.p99), rounds, ratios[rounds/2], ratios[0], ratios[rounds-1])
	if ratios[rounds/2] > 1.2 {
		row.failed = []string{"p99 within 20%"}
	}
	return row
}

// slowSync slows the fsync of a running node down. No check waits for it. An edit waits for the transactions of the node before it: it
// succeeds, or is answered 503 in time.
func slowSync(t *testing.T) (row faultRow) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatalf("this scenario needs strace (Debian: apt-get install strace): %v", err)
	}
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false"}).serving()
	f := &cluster{t: t, nodes: []*process{node}}
	publishLoad(f)
	before := runLoad(t, f.nodes, faultRate, 1000, 4*time.Second)

	trace := filepath.Join(t.TempDir(), "trace")
	tracer := exec.Command(strace, "-f", "-qq", "-o", trace, "-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=2000000",
		"-p", fmt.Sprint(node.command.Process.Pid))
	var said bytes.Buffer
	tracer.Stderr = &said
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- tracer.Wait() }()
	defer func() {
		_ = tracer.Process.Signal(syscall.SIGINT) // it detaches, and the node continues
		<-ended
	}()
	syncs := func() int {
		text, _ := os.ReadFile(trace)
		return bytes.Count(text, []byte("sync("))
	}
	slowest := time.Duration(0)
	edits, late := 0, 0
	edited := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go func() {
		defer close(edited)
		for n := 0; ctx.Err() == nil; n++ {
			began := time.Now()
			a, err := tryCall(t.Context(), bootstrap, "POST", node.origin+"/v1/tenants", fmt.Sprintf(`{"slug": "t%d", "tenant": {"require_route": false, "name": "t"}}`, n))
			slowest = max(slowest, time.Since(began))
			switch {
			case err == nil && a.status == http.StatusCreated:
				edits++
			case err == nil && a.status == http.StatusServiceUnavailable:
				late++
			default:
				t.Errorf("an edit: %d %v %s", a.status, err, a.body)
				return
			}
		}
	}()
	eventually(t, "an fsync is delayed", func() bool { return syncs() > 0 || len(ended) > 0 })
	during := runLoad(t, f.nodes, faultRate, 1000, 15*time.Second)
	stop()
	<-edited
	if edits == 0 {
		t.Error("no edit succeeded")
	}
	if syncs() < 3 || slowest < 2*time.Second {
		t.Fatalf("fsync was not slow: %d calls, slowest edit %s: %s", syncs(), slowest, said.String())
	}
	if during.Requests < 15*faultRate*9/10 {
		t.Errorf("%d checks were answered in 15 s", during.Requests)
	}
	row.healthy, row.p99 = before.Latency.Quantile(0.99), during.Latency.Quantile(0.99)
	row.measure = fmt.Sprintf("%d of %d checks allowed, slowest %.0f ms; %d edits succeed, %d are answered `503`, the slowest answer after %.1f s; %d slow calls",
		during.Allowed, during.Requests, milli(during.Latency.Max()), edits, late, slowest.Seconds(), syncs())
	row.counts = fmt.Sprintf("%d of %d", 0, during.Requests)
	return row
}

// wrongKeys sends 1,000 checks a second with keys that do not exist. A third has the form of a key.
func wrongKeys(b *faultBench) {
	token := "hg_tn_" + strings.Repeat("x", 49)
	for i := range 3 {
		wrong := []string{token, withChecksum(token), "nothing"}[i]
		b.during.Go(func() {
			host := strings.TrimPrefix(b.cluster.nodes[i].origin, "http://")
			got, err := load.Run(b.Context(), load.Config{
				Dial:        func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", host) },
				Request:     load.NewRequest("headgate", "/v1/check", `{"tenant": "faults"}`, 1, "Authorization: Bearer "+wrong),
				Connections: 8, Rate: 334, Duration: 6 * time.Second,
			})
			if err != nil || got.Err != nil || got.Statuses[http.StatusUnauthorized] != got.Requests || got.Requests < 1500 {
				b.Errorf("wrong keys: %v, %+v", err, got)
			}
		})
	}
}

// withChecksum replaces the last characters of a token by the checksum of those before.
func withChecksum(token string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	body := token[:len(token)-6]
	sum := crc32.ChecksumIEEE([]byte(body))
	var out [6]byte
	for i := 5; i >= 0; i-- {
		out[i] = digits[sum%62]
		sum /= 62
	}
	return body + string(out[:])
}

// attackHTTP2 repeats four attacks on connections with HTTP/2, two of each. A node that ends a
// connection gets a new one.
func attackHTTP2(b *faultBench) {
	attacks := []func(*http2.Framer, uint32, []byte) error{
		func(to *http2.Framer, stream uint32, head []byte) error { // rapid reset
			if err := to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true, EndStream: true}); err != nil {
				return err
			}
			return to.WriteRSTStream(stream, http2.ErrCodeCancel)
		},
		func(to *http2.Framer, stream uint32, head []byte) error { // headers that do not end
			if err := to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head}); err != nil {
				return err
			}
			for range 1000 {
				if err := to.WriteContinuation(stream, false, literal("x-more", strings.Repeat("x", 1000))); err != nil {
					return err
				}
			}
			return nil
		},
		func(to *http2.Framer, stream uint32, head []byte) error { // answers that find no window
			return to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head, EndHeaders: true, EndStream: true})
		},
		func(to *http2.Framer, stream uint32, head []byte) error { // a large header table, and references to it
			var block bytes.Buffer
			hpack.NewEncoder(&block).SetMaxDynamicTableSize(1 << 20)
			block.Write(head)
			block.Write(literal("x-large", strings.Repeat("x", 4000)))
			block.Write(bytes.Repeat([]byte{0xbe}, 4000)) // the newest entry, 4,000 times
			return to.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
		},
	}
	var sent [4]atomic.Int64
	for i := range 8 {
		b.during.Go(func() {
			for b.ctx.Err() == nil {
				sent[i/2].Add(attackOnce(b, b.cluster.nodes[i%3].origin, attacks[i/2], i/2 == 2))
			}
		})
	}
	b.during.Go(func() {
		<-b.ctx.Done()
		b.Logf("streams: %d reset, %d without an end of headers, %d without a window, %d with large headers", sent[0].Load(), sent[1].Load(), sent[2].Load(), sent[3].Load())
		for i := range sent {
			if sent[i].Load() < 10 {
				b.Errorf("attack %d sent %d streams", i, sent[i].Load())
			}
		}
	})
}

// literal returns a header field in HPACK, without indexing and without Huffman codes.
func literal(name, value string) (b []byte) {
	b = append(b, 0)
	for _, text := range []string{name, value} {
		if len(text) < 127 {
			b = append(b, byte(len(text)))
		} else {
			b = append(b, 127)
			n := len(text) - 127
			for ; n >= 128; n >>= 7 {
				b = append(b, byte(n)|128)
			}
			b = append(b, byte(n))
		}
		b = append(b, text...)
	}
	return b
}

// attackOnce attacks on one connection until the node or the fault ends it, and returns the number of
// streams.
func attackOnce(b *faultBench, origin string, attack func(*http2.Framer, uint32, []byte) error, closed bool) (streams int64) {
	c, err := net.Dial("tcp", strings.TrimPrefix(origin, "http://"))
	if err != nil {
		return 0
	}
	defer c.Close()
	stop := context.AfterFunc(b.ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(http2.ClientPreface)); err != nil {
		return 0
	}
	to := http2.NewFramer(c, c)
	settings := []http2.Setting{{ID: http2.SettingHeaderTableSize, Val: 1 << 20}}
	if closed {
		settings = append(settings, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	}
	if err := to.WriteSettings(settings...); err != nil {
		return 0
	}
	for { // the node's settings come first
		f, err := to.ReadFrame()
		if err != nil {
			return 0
		}
		if s, ok := f.(*http2.SettingsFrame); ok && !s.IsAck() {
			break
		}
	}
	if err := to.WriteSettingsAck(); err != nil {
		return 0
	}
	ended := make(chan struct{})
	go func() { // answers are read, so that the node is not slowed down by a full connection
		defer close(ended)
		for {
			if f, err := to.ReadFrame(); err != nil || f.Header().Type == http2.FrameGoAway {
				return
			}
		}
	}()
	var head bytes.Buffer
	encoder := hpack.NewEncoder(&head)
	encoder.SetMaxDynamicTableSize(0)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "headgate"}, {":path", "/openapi.yaml"}, {"authorization", "Bearer " + bootstrap}} {
		_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1], Sensitive: true})
	}
	for stream := uint32(1); stream < 20_000; stream += 2 {
		select {
		case <-ended:
			return streams
		default:
		}
		if attack(to, stream, head.Bytes()) != nil {
			return streams
		}
		streams++
	}
	return streams
}

// comparison compares two lists of times: the difference of the means, and the probability of a
// difference of the ranks as large as theirs if both have the same distribution (Mann-Whitney).
func comparison(a, b []time.Duration) (difference time.Duration, ratio, p float64) {
	type measured struct {
		took  time.Duration
		first bool
	}
	var all []measured
	var sum [2]time.Duration
	for _, d := range a {
		all, sum[0] = append(all, measured{d, true}), sum[0]+d
	}
	for _, d := range b {
		all, sum[1] = append(all, measured{d, false}), sum[1]+d
	}
	slices.SortFunc(all, func(x, y measured) int { return int(x.took - y.took) })
	ranks := 0.0
	for i, m := range all {
		if m.first {
			ranks += float64(i + 1)
		}
	}
	n, k := float64(len(a)), float64(len(b))
	z := (ranks - n*(n+1)/2 - n*k/2) / math.Sqrt(n*k*(n+k+1)/12)
	median := func(d []time.Duration) float64 { return float64(slices.Sorted(slices.Values(d))[len(d)/2]) }
	return sum[0]/time.Duration(len(a)) - sum[1]/time.Duration(len(b)), median(a) / median(b), math.Erfc(math.Abs(z) / math.Sqrt2)
}

// foreignTimes asks for keys of another tenant and for random IDs, in a random order.
func foreignTimes(t *testing.T) (row faultRow) {
	f := startCluster(t, 1, nil)
	origin := f.nodes[0].origin
	var manager, foreign struct {
		Token string
		Key   struct{ ID string }
	}
	for _, slug := range []string{"acme", "globex"} {
		call(t, bootstrap, "POST", origin+"/v1/tenants", fmt.Sprintf(`{"slug": %q, "tenant": {"require_route": false, "name": "t"}}`, slug)).want(t, 201)
	}
	call(t, bootstrap, "POST", origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["manage"]}`).want(t, 201).into(t, &manager)
	call(t, bootstrap, "POST", origin+"/v1/tenants/globex/keys", `{"name": "k", "scopes": ["check"]}`).want(t, 201).into(t, &foreign)
	const times = 1000
	var took [2][]time.Duration
	for len(took[0]) < times || len(took[1]) < times {
		kind := rand.IntN(2)
		id := foreign.Key.ID
		if kind == 1 {
			random := []byte(id)
			for i := range random {
				if random[i] != '-' && i > 18 {
					random[i] = "0123456789abcdef"[rand.IntN(16)]
				}
			}
			id = string(random)
		}
		began := time.Now()
		a := call(t, manager.Token, "GET", origin+"/v1/tenants/acme/keys/"+id, "")
		if elapsed := time.Since(began); len(took[kind]) < times {
			took[kind] = append(took[kind], elapsed)
		}
		a.want(t, http.StatusNotFound)
	}
	difference, ratio, p := comparison(took[0], took[1])
	row.measure = fmt.Sprintf("mean difference %.3f ms, ratio of the medians %.3f, p = %.2f (Mann-Whitney), %d of each", milli(difference), ratio, p, times)
	if difference.Abs() > time.Millisecond {
		row.failed = []string{"within 1 ms on average"}
	}
	return row
}

// prefixTimes tries keys that share 40 characters with a valid one, and others, in a random order.
func prefixTimes(t *testing.T) (row faultRow) {
	node := launch(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_SAMPLE": "false"}).serving()
	var valid struct{ Token string }
	call(t, bootstrap, "POST", node.origin+"/v1/tenants", `{"slug": "acme", "tenant": {"require_route": false, "name": "t"}}`).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/tenants/acme/keys", `{"name": "k", "scopes": ["check"]}`).want(t, 201).into(t, &valid)
	call(t, valid.Token, "POST", node.origin+"/v1/check", `{"method": "GET", "path": "/"}`).want(t, 200)
	if withChecksum(valid.Token) != valid.Token {
		t.Fatal("the checksum is not that of a valid key")
	}
	const times = 10_000
	var took [2][]time.Duration
	for len(took[0]) < times || len(took[1]) < times {
		kind, shared := rand.IntN(2), 40
		if kind == 1 {
			shared = 6
		}
		token := []byte(valid.Token)
		for i := shared; i < len(token); i++ {
			token[i] = "0123456789abcdef"[rand.IntN(16)]
		}
		guess := withChecksum(string(token))
		began := time.Now()
		a := call(t, guess, "POST", node.origin+"/v1/check", `{"method": "GET", "path": "/"}`)
		if elapsed := time.Since(began); len(took[kind]) < times {
			took[kind] = append(took[kind], elapsed)
		}
		a.want(t, http.StatusUnauthorized)
	}
	difference, ratio, p := comparison(took[0], took[1])
	row.measure = fmt.Sprintf("mean difference %.1f µs, ratio of the medians %.4f, p = %.2f (Mann-Whitney), %d of each",
		float64(difference.Nanoseconds())/1000, ratio, p, times)
	if p <= 0.01 {
		row.failed = []string{"p > 0.01"}
	}
	return row
}

// largestBatches counts the script calls that take Redis more than 2 ms.
func largestBatches(t *testing.T) (row faultRow) {
	const slow, batches = 2 * time.Millisecond, 5
	server := servertest.StartRedis(t).Prefer()
	raw := redisClient(t, server.URL())
	f := startCluster(t, 1, map[string]string{"HEADGATE_REDIS_URL": server.URL()})
	var limits, policies, checks []string
	for i := range 8 {
		limits = append(limits, fmt.Sprintf(`{"name": "l%d", "algorithm": "token_bucket", "window": "1h", "quota": %d}`, i, 1_000_000+i))
	}
	for i := range 4 {
		policies = append(policies, fmt.Sprintf(`{"slug": "p%d", "count_by": ["user"], "limits": [%s]}`, i, strings.Join(limits, ",")))
	}
	f.publish("load", "["+strings.Join(policies, ",")+"]")
	f.tenant("load", "load")
	for i := range 1000 {
		checks = append(checks, fmt.Sprintf(`{"tenant": "load", "attributes": {"user": "u%d"}}`, i))
	}
	body := `{"checks": [` + strings.Join(checks, ",") + `]}`
	calls := func() int64 {
		text := call(t, "", "GET", f.nodes[0].origin+"/metrics", "").body
		var n int64
		_, _ = fmt.Sscanf(line(text, "headgate_redis_calls_total "), "headgate_redis_calls_total %d", &n)
		return n
	}
	if err := raw.ConfigSet(t.Context(), "slowlog-log-slower-than", fmt.Sprint(slow.Microseconds())).Err(); err != nil {
		t.Fatal(err)
	}
	if err := raw.ConfigSet(t.Context(), "slowlog-max-len", "100000").Err(); err != nil {
		t.Fatal(err)
	}
	before := calls()
	for range batches {
		call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/check/batch", body).want(t, http.StatusOK)
	}
	made := calls() - before
	found, err := raw.SlowLogGet(t.Context(), -1).Result()
	if err != nil || made < batches {
		t.Fatalf("%d calls, %v", made, err)
	}
	longest := time.Duration(0)
	for _, l := range found {
		longest = max(longest, l.Duration)
	}
	row.measure = fmt.Sprintf("%d batches in %d calls: %d calls above 2 ms of Redis' time, the longest %.1f ms", batches, made, len(found), milli(longest))
	if len(found) > 0 {
		row.failed = []string{"at most 2 ms of Redis' time"}
	}
	return row
}
