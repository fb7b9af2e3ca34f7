//go:build !quick

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/servertest"
)

// BenchmarkCheckHTTP measures POST /v1/check over loopback, in both modes,
// beside a no-op echo handler that reads the body and answers as many bytes.
// The contenders take turns, a fifth of a second each, and what counts is the
// median over the rounds of the ratio within one round: the machine is noisy,
// and what is noise now is noise for all of them.
//
//	req/s          of the contender, median
//	x-noop         of the no-op's req/s in the same round, median
func BenchmarkCheckHTTP(b *testing.B) {
	embedded := start(b, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(b.TempDir()), "HEADGATE_LOG_LEVEL": "error"})
	shared := start(b, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(b.TempDir()), "HEADGATE_LOG_LEVEL": "error", "HEADGATE_LIMITER_TIMEOUT": "30s",
		"HEADGATE_REDIS_URL": servertest.Redis(b), "HEADGATE_REDIS_PREFIX": "hg-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	})
	contenders := []contender{
		{"noop", strings.TrimPrefix(serveNoop(b), "http://"), ""},
		{"embedded", strings.TrimPrefix(embedded.origin, "http://"), prepareBench(b, embedded)},
		{"redis", strings.TrimPrefix(shared.origin, "http://"), prepareBench(b, shared)},
	}
	for _, connections := range []int{1, 64} {
		b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
			rates := make([][]float64, len(contenders))
			for range max(b.N, 5) {
				for i, c := range contenders {
					rates[i] = append(rates[i], c.rate(b, connections, 200*time.Millisecond))
				}
			}
			for i, c := range contenders {
				ratios := make([]float64, len(rates[i]))
				for round := range ratios {
					ratios[round] = rates[i][round] / rates[0][round]
				}
				b.ReportMetric(median(rates[i]), c.name+"-req/s")
				b.ReportMetric(median(ratios), c.name+"-x-noop")
			}
			b.ReportMetric(0, "ns/op") // a round, which says nothing
		})
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// prepareBench publishes a plan that admits everything and gives a key.
func prepareBench(b *testing.B, node *running) string {
	operator := node.await(node.out, operatorKeyLine)[1]
	made := call(b, operator, "POST", node.origin+"/v1/plans",
		`{"slug": "bench", "draft": {"name": "bench", "policies": [{"slug": "per-user", "count_by": ["user"], "limits": [{"algorithm": "token_bucket", "quota": 1000000000, "window": "1s"}]}]}}`).want(b, 201)
	call(b, operator, "POST", node.origin+"/v1/plans/bench/publish", "", "If-Match", made.header.Get("ETag")).want(b, 200)
	call(b, operator, "POST", node.origin+"/v1/tenants", `{"slug": "bench", "tenant": {"name": "bench", "plan": "bench"}}`).want(b, 201)
	var key struct{ Token string }
	call(b, operator, "POST", node.origin+"/v1/tenants/bench/keys", `{"name": "bench", "scopes": ["check"]}`).want(b, 201).into(b, &key)
	return key.Token
}

// serveNoop is the baseline: the same router, the body read, a constant answer.
func serveNoop(b *testing.B) string {
	e := echo.New()
	answer := bytes.Repeat([]byte("x"), 430)
	e.POST("/v1/check", func(c echo.Context) error {
		if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "application/json", answer)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: e, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

type contender struct{ name, addr, key string }

// rate is how many requests a second the contender answers to closed-loop
// connections, 10,000 keys in turn.
func (c contender) rate(b *testing.B, connections int, d time.Duration) float64 {
	var answered atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for i := range connections {
		wait.Go(func() {
			if err := c.ask(&answered, i*1000, began.Add(d)); err != nil {
				b.Errorf("%s: %v", c.name, err)
			}
		})
	}
	wait.Wait()
	return float64(answered.Load()) / time.Since(began).Seconds()
}

// ask is a client that costs little: it writes prepared bytes and looks only
// for the status and the length.
func (c contender) ask(answered *atomic.Int64, user int, until time.Time) error {
	conn, err := net.Dial("tcp", c.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var request []byte
	for time.Now().Before(until) {
		user++
		body := fmt.Sprintf(`{"method":"GET","path":"/api/things/42","attributes":{"user":"u%d","ip":"203.0.113.9"}}`, user%10_000)
		request = fmt.Appendf(request[:0], "POST /v1/check HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.key, len(body), body)
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if err := readAnswer(in); err != nil {
			return err
		}
		answered.Add(1)
	}
	return nil
}

func readAnswer(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("answered %s", bytes.TrimSpace(line))
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if len(line) == 2 {
			_, err := in.Discard(length)
			return err
		}
	}
}
