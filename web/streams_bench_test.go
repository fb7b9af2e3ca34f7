package web_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/audit"
	"github.com/headgate/headgate/web"
)

// BenchmarkStreams measures the resources that 1,000 live pages of 25 operators need on a node:
// all on one page, on one page per person, and each on its own page. The client is in the same
// process. Its goroutines and memory are therefore measured first, with a server that sends
// nothing.
func BenchmarkStreams(b *testing.B) {
	for _, kind := range []string{"one page", "25 pages", "1,000 pages"} {
		b.Run(kind, func(b *testing.B) {
			w := newWorld(b, live)
			var cookies []string
			ctx := audit.With(context.Background(), audit.Actor{Kind: "command", ID: "bench", Name: "bench"}, audit.Origin{})
			for i := range web.MaxStreams / web.MaxOwnStreams {
				n := accounts.NewPerson{Email: fmt.Sprintf("p%d@people.example", i), Name: "P", Password: password}
				_, token, err := w.people.Invite(ctx, accounts.CommandPrincipal("bench"), "", n.Email, accounts.Viewer)
				must(b, err)
				_, err = w.people.Accept(ctx, token, n)
				must(b, err)
				cookie, _, _, err := w.people.SignIn(ctx, n.Email, password, "192.0.2.1", "Firefox/140.0")
				must(b, err)
				cookies = append(cookies, cookie)
			}
			idle := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_, _ = rw.Write([]byte("event: overview\n\n"))
				_ = http.NewResponseController(rw).Flush()
				<-r.Context().Done()
			})
			for b.Loop() {
				base := measureStreams(b, idle, cookies, kind)
				got := measureStreams(b, w.handler, cookies, kind)
				b.ReportMetric(float64(got.goroutines-base.goroutines)/web.MaxStreams, "goroutines/stream")
				b.ReportMetric((got.bytes-base.bytes)/1024/web.MaxStreams, "KB/stream")
				b.ReportMetric(base.bytes/1024/web.MaxStreams, "KB/idle-connection")
				b.ReportMetric((got.cpu-base.cpu).Seconds()/got.took.Seconds(), "cores")
			}
		})
	}
}

type streamCost struct {
	goroutines int
	bytes      float64
	cpu, took  time.Duration
}

func measureStreams(b *testing.B, handler http.Handler, cookies []string, kind string) streamCost {
	b.Helper()
	server := httptest.NewServer(handler)
	defer server.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before, began := memoryNow()
	for i := range web.MaxStreams {
		path := "/overview/live"
		switch kind {
		case "25 pages":
			path += fmt.Sprintf("?route=/r%d", i%len(cookies))
		case "1,000 pages":
			path += fmt.Sprintf("?route=/r%d", i)
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, http.NoBody)
		must(b, err)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.AddCookie(&http.Cookie{Name: "headgate", Value: cookies[i%len(cookies)]})
		response, err := server.Client().Do(r)
		must(b, err)
		defer response.Body.Close()
		in := bufio.NewReader(response.Body)
		for line := ""; !strings.HasPrefix(line, "event:"); {
			if line, err = in.ReadString('\n'); err != nil {
				b.Fatalf("stream %d: %d %v", i, response.StatusCode, err)
			}
		}
		go func() { // reads on like a browser
			for err == nil {
				_, err = in.ReadString('\n')
			}
		}()
	}
	var cost streamCost
	bytes, goroutines := memoryNow()
	cost.bytes, cost.goroutines = bytes-before, goroutines-began
	cpu, at := processorTime(b), time.Now()
	<-time.After(10 * time.Second)
	cost.cpu, cost.took = processorTime(b)-cpu, time.Since(at)
	return cost
}

// memoryNow returns the memory of the heap and the stacks in bytes, and the number of
// goroutines.
func memoryNow() (bytes float64, goroutines int) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
