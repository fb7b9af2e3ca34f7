package api_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/http1"
	"github.com/headgate/headgate/internal/metrics"
	"github.com/headgate/headgate/internal/snapshot"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// size has the numbers of objects of an installation.
type size struct {
	tenants  int
	policies int // of the only plan; a check matches one of them
	limits   int // of each policy
	rows     int // overrides, list entries and blocks of the first tenant: so many of each kind
	users    int // users of a tenant that send checks
}

// An installation is an embedded server of some size, without its network.
type installation struct {
	size
	api    *api.API
	tokens []string // one key of each tenant
	random *rand.Rand

	request *http.Request
	body    body
	pending []pending

	clients []*os.File // blocking connections to the API over loopback
	answer  []byte
}

// pending is a check that a round sends.
type pending struct{ authorization, body string }

// install compiles the rows of an installation. Then it sends a check for every tenant, policy
// and user.
func install(b *testing.B, s size) *installation {
	n := &installation{size: s, random: rand.New(rand.NewPCG(1, 2)), pending: make([]pending, 500)}
	c := snapshot.Changes{Revision: 1, Plans: []snapshot.PublishedPlan{s.plan()}}
	for i := range s.tenants {
		token := tenants.NewToken(tenants.TenantToken)
		n.tokens = append(n.tokens, token)
		c.Tenants = append(c.Tenants, tenants.Tenant{
			ID: rowID(1, i), Slug: fmt.Sprintf("tenant-%d", i), Number: uint32(i + 1), Home: fmt.Sprintf("h%d", i%64), PlanID: "plan",
			PlanRevision: 1, Revision: 1, Document: tenants.Document{Status: tenants.Active, NoPolicy: tenants.Allow, Plan: "plan"},
		})
		c.Keys = append(c.Keys, tenants.Key{
			ID: rowID(2, i), TenantID: rowID(1, i), Name: "key", Hash: tenants.HashToken(token),
			Scopes: []tenants.Scope{tenants.ScopeCheck}, Revision: 1,
		})
	}
	s.addExceptions(&c)
	world, report := snapshot.Compile(nil, c, snapshot.Options{})
	if report.Held != nil || report.Problems > 0 {
		b.Fatalf("%+v: %v", report, world.Problems())
	}
	began := time.Now()
	now := func() time.Time { return began } // counts are kept for one second, as with a flush in every second
	recorder := metrics.NewRecorder(metrics.Config{Now: now})
	limiter := recorder.InstrumentLimiter(inprocess.New(inprocess.Config{}))
	n.api = api.New(api.Config{
		Snapshot:  func() *snapshot.Snapshot { return world },
		Decider:   enforcement.NewEngine(limiter, enforcement.Config{Recorder: recorder, Now: now}),
		Admission: admission.New(admission.Config{}), Headers: api.Draft11,
	})
	n.request = httptest.NewRequest(http.MethodPost, "/v1/check", nil)
	n.request.Header.Set("Content-Type", "application/json")
	n.request.Header.Set("Authorization", "")
	n.request.Body = &n.body
	for i := range max(s.tenants, s.policies, s.users) {
		n.send(b, n.check(i%s.tenants, i%s.policies, i%s.users))
	}
	return n
}

func rowID(kind, i int) string { return fmt.Sprintf("%08d-0000-7000-8000-%012d", kind, i) }

func (s size) plan() snapshot.PublishedPlan {
	p := snapshot.PublishedPlan{ID: "plan", Slug: "plan", Version: 1, Revision: 1}
	for i := range s.policies {
		policy := plans.Policy{
			Slug: fmt.Sprintf("policy-%d", i), Match: plans.Match{Path: fmt.Sprintf("/v1/resource-%d/*", i)}, CountBy: []string{"user"},
		}
		for k := range s.limits {
			l := enforcement.Limit{
				Name: fmt.Sprintf("l%d", k+1), Algorithm: enforcement.FixedWindow, Quota: enforcement.MaxQuota, Window: time.Hour,
			}
			policy.Limits = append(policy.Limits, l)
			p.Limits = append(p.Limits, plans.Published{
				Cell: plans.Cell{
					Number: uint32(i*s.limits + k + 1), Policy: policy.Slug, Limit: l.Name, Algorithm: l.Algorithm, CountBy: policy.CountBy,
				},
				Rev: 1, Limit: l,
			})
		}
		d := p.Document.Content()
		d.Policies = append(d.Policies, policy)
		p.Document = plans.New(d)
	}
	return p
}

// addExceptions adds the exceptions of the first tenant. Each override is for one user. The
// list entries and blocks are for users who send no checks.
func (s size) addExceptions(c *snapshot.Changes) {
	from, until, tenant := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour), rowID(1, 0)
	for i := range s.rows {
		user := fmt.Sprintf("user-%d", i)
		c.Overrides = append(c.Overrides, exceptions.Override{
			ID: rowID(3, i), TenantID: tenant, Policy: "policy-0", Attribute: "user", Value: user, Factor: 2000, Reason: "launch",
			CreatedAt: from, ExpiresAt: until, Revision: 1,
		})
		c.Entries = append(c.Entries, exceptions.Entry{
			ID: rowID(4, i), TenantID: tenant, List: exceptions.Deny, Attribute: "user", Value: "denied-" + user, CreatedAt: from, Revision: 1,
		})
		c.Blocks = append(c.Blocks, exceptions.Block{
			ID: rowID(5, i), TenantID: tenant, Policy: "policy-0", Key: map[string]string{"user": "blocked-" + user}, Reason: "scraping",
			CreatedAt: from, ExpiresAt: until, Revision: 1,
		})
	}
}

// check returns a check of a tenant for a path of one policy and for one user. If there are
// exceptions, the users are distributed over the overrides.
func (n *installation) check(tenant, policy, user int) pending {
	return pending{"Bearer " + n.tokens[tenant], fmt.Sprintf(`{"method":"GET","path":"/v1/resource-%d/42","attributes":{"user":"user-%d"}}`,
		policy, user*max(1, n.rows/n.users))}
}

// status is a response writer that keeps only the status and the headers.
type status struct {
	discard
	code int
}

func (s *status) WriteHeader(code int) { s.code = code }

// limitHeader has the spelling of the IETF draft, which differs from Go's canonical spelling.
var limitHeader = "RateLimit"

// send sends a check, which a limit must allow.
func (n *installation) send(b *testing.B, p pending) {
	n.body.Reset(p.body)
	n.request.Header["Authorization"][0] = p.authorization
	n.request.ContentLength = int64(len(p.body))
	w := status{discard: discard{http.Header{}}}
	n.api.ServeHTTP(&w, n.request)
	if w.code != http.StatusOK || len(w.h[limitHeader]) == 0 {
		b.Fatalf("%d %v", w.code, w.h)
	}
}

// choose creates the checks of a round: of random tenants, paths and users. It runs before the
// time is measured, because the texts are not part of the server.
func (n *installation) choose() {
	for i := range n.pending {
		n.pending[i] = n.check(n.random.IntN(n.tenants), n.random.IntN(n.policies), n.random.IntN(n.users))
	}
}

// round sends checks to the handler. It returns the processor time of one check in nanoseconds.
func (n *installation) round(b *testing.B) float64 {
	n.choose()
	began := cpu(b, threadTime)
	for _, p := range n.pending {
		n.send(b, p)
	}
	return float64((cpu(b, threadTime) - began).Nanoseconds()) / float64(len(n.pending))
}

// clientsOfOne is the number of connections of an installation. The number of checks of a round
// is a multiple of it.
const clientsOfOne = 50

// listen serves the API as a node does, and opens the connections.
func (n *installation) listen(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http1.Server{Path: api.CheckPath, HTTP: api.Server("", n.api, slog.New(slog.DiscardHandler))}
	go func() { _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close() })
	for range clientsOfOne {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		file, err := c.(*net.TCPConn).File()
		if err != nil {
			b.Fatal(err)
		}
		file.Fd() // makes it blocking: the runtime does no work for the client
		_ = c.Close()
		b.Cleanup(func() { _ = file.Close() })
		n.clients = append(n.clients, file)
	}
	n.answer = make([]byte, 16<<10)
}

// roundHTTP is like round, over HTTP. It measures the processor time of the process without the
// thread of the client. This includes reading and writing, the handler, the scheduler, and the
// garbage collector.
func (n *installation) roundHTTP(b *testing.B) float64 {
	n.choose()
	texts := make([][]byte, len(n.pending))
	for i, p := range n.pending {
		texts[i] = fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: %s\r\nContent-Length: %d\r\n\r\n%s",
			api.CheckPath, p.authorization, len(p.body), p.body)
	}
	began := cpu(b, processTime) - cpu(b, threadTime)
	for ; len(texts) > 0; texts = texts[clientsOfOne:] {
		for i, c := range n.clients {
			if _, err := c.Write(texts[i]); err != nil {
				b.Fatal(err)
			}
		}
		for _, c := range n.clients {
			n.receive(b, c)
		}
	}
	return float64((cpu(b, processTime) - cpu(b, threadTime) - began).Nanoseconds()) / float64(len(n.pending))
}

// receive reads an answer, which must allow the check.
func (n *installation) receive(b *testing.B, c *os.File) {
	size := 0
	for size == 0 || !bytes.HasSuffix(n.answer[:size], []byte("]}")) {
		more, err := c.Read(n.answer[size:])
		if err != nil {
			b.Fatal(err)
		}
		size += more
	}
	if text := n.answer[:size]; !bytes.HasPrefix(text, []byte("HTTP/1.1 200 ")) || !bytes.Contains(text, []byte("\r\nRateLimit: ")) {
		b.Fatalf("%s", text)
	}
}

// The clocks of cpu.
const (
	processTime = 2 // CLOCK_PROCESS_CPUTIME_ID
	threadTime  = 3 // CLOCK_THREAD_CPUTIME_ID
)

// cpu returns the processor time of this process or of this thread. Other programs do not
// affect it.
func cpu(b *testing.B, clock uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		b.Fatal(err)
	}
	return time.Duration(ts.Nano())
}

// BenchmarkGrowth measures the processor time of one POST /v1/check for embedded installations
// of different sizes: of the handler alone, and of the server over HTTP with 50 connections.
// The sizes are measured in turns of 500 checks. ns/n is the median for a size. x/n is the
// median of the ratio to the smallest size in the same turn. The ratios include the effect of
// processor caches, which cannot hold a large installation.
func BenchmarkGrowth(b *testing.B) {
	for _, row := range []struct {
		name  string
		sizes []int
		size  func(n int) size
	}{
		{"tenants", []int{10, 1_000, 100_000}, func(n int) size { return size{n, 1, 1, 0, 1} }},
		{"policies", []int{1, 100, plans.MaxPolicies}, func(n int) size { return size{1, n, 1, 0, 1} }},
		{"limits", []int{1, 3, plans.MaxLimits}, func(n int) size { return size{1, 1, n, 0, 1} }},
		{"rows", []int{0, 1_000, exceptions.MaxOverrides}, func(n int) size { return size{1, 1, 1, n, 1_000} }},
		{"keys", []int{1, 10_000, 1_000_000}, func(n int) size { return size{1, 1, 1, 0, n} }},
	} {
		b.Run(row.name, func(b *testing.B) {
			var all []*installation
			for _, n := range row.sizes {
				all = append(all, install(b, row.size(n)))
			}
			for _, n := range all {
				n.listen(b)
			}
			b.Run("handler", func(b *testing.B) { inTurns(b, row.sizes, all, (*installation).round) })
			b.Run("http", func(b *testing.B) { inTurns(b, row.sizes, all, (*installation).roundHTTP) })
		})
	}
}

// inTurns measures installations of several sizes.
func inTurns(b *testing.B, sizes []int, all []*installation, round func(*installation, *testing.B) float64) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as in a serving node
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took, ratio := make([][]float64, len(all)), make([][]float64, len(all))
	for turn := 0; b.Loop(); turn++ {
		for i := range all { // each size starts a third of the turns
			i = (i + turn) % len(all)
			took[i] = append(took[i], round(all[i], b))
		}
		for i := range all {
			ratio[i] = append(ratio[i], took[i][turn]/took[0][turn])
		}
	}
	for i, n := range sizes {
		b.ReportMetric(median(took[i]), fmt.Sprintf("ns/%d", n))
		if i > 0 {
			b.ReportMetric(median(ratio[i]), fmt.Sprintf("x/%d", n))
		}
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}
