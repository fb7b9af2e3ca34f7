//go:build !quick

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/servertest"
)

// BenchmarkCheckHTTP measures POST /v1/check over loopback, with Redis and in process. The
// baseline is an echo handler without work that reads the body and answers with the same number
// of bytes. The variants run in turns of a fifth of a second. The metrics are medians of ratios
// within one round, so that other load of the machine affects both sides of a ratio.
//
//	req/s    requests per second of the variant
//	x-noop   divided by the requests per second of the baseline in the same round
//	x-plain  requests per second of the same checks without an Idempotency-Key, divided by
//	         those with a new Idempotency-Key each, in the same round
func BenchmarkCheckHTTP(b *testing.B) {
	embedded := start(b, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(b.TempDir()), "HEADGATE_LOG_LEVEL": "error", "HEADGATE_MAX_IDEMPOTENCY_KEYS": "1000000000"})
	shared := start(b, map[string]string{
		"HEADGATE_DATABASE_URL": sqliteIn(b.TempDir()), "HEADGATE_LOG_LEVEL": "error", "HEADGATE_MAX_IDEMPOTENCY_KEYS": "1000000000",
		"HEADGATE_REDIS_URL": servertest.Redis(b), "HEADGATE_REDIS_PREFIX": "hg-" + strconv.FormatInt(time.Now().UnixNano(), 36) + ":",
	})
	inProcess, redis := prepareBench(b, embedded), prepareBench(b, shared)
	contenders := []contender{
		{"noop", strings.TrimPrefix(serveNoop(b), "http://"), "Accept: */*"},
		{"embedded", strings.TrimPrefix(embedded.origin, "http://"), inProcess},
		{"embedded-idempotent", strings.TrimPrefix(embedded.origin, "http://"), inProcess + idempotent},
		{"redis", strings.TrimPrefix(shared.origin, "http://"), redis},
		{"redis-idempotent", strings.TrimPrefix(shared.origin, "http://"), redis + idempotent},
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
				if strings.HasSuffix(c.name, "-idempotent") {
					for round := range ratios {
						ratios[round] = rates[i-1][round] / rates[i][round]
					}
					b.ReportMetric(median(ratios), c.name+"-x-plain")
				}
			}
			b.ReportMetric(0, "ns/op") // hide the time per round, which has no meaning
		})
	}
}

// idempotent is the header Idempotency-Key with a new value for each check.
const idempotent = "\r\nIdempotency-Key: " + load.KeyPlace + "-" + load.KeyPlace

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// prepareBench publishes a plan whose limits deny nothing. It returns the header with the API
// key.
func prepareBench(b *testing.B, node *running) string {
	operator := node.await(node.out, operatorKeyLine)[1]
	made := call(b, operator, "POST", node.origin+"/v1/plans",
		`{"slug": "bench", "draft": {"name": "bench", "policies": [{"slug": "per-user", "count_by": ["user"], "limits": [{"algorithm": "token_bucket", "quota": 1000000000, "window": "1s"}]}]}}`).want(b, 201)
	call(b, operator, "POST", node.origin+"/v1/plans/bench/publish", "", "If-Match", made.header.Get("ETag")).want(b, 200)
	call(b, operator, "POST", node.origin+"/v1/tenants", `{"slug": "bench", "tenant": {"require_route": false, "name": "bench", "plan": "bench"}}`).want(b, 201)
	var key struct{ Token string }
	call(b, operator, "POST", node.origin+"/v1/tenants/bench/keys", `{"name": "bench", "scopes": ["check"]}`).want(b, 201).into(b, &key)
	return "Authorization: Bearer " + key.Token
}

// serveNoop starts the baseline: the same router, with a handler that reads the body and sends
// a constant response.
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

type contender struct{ name, addr, header string }

// rate returns the requests per second of a variant. Each connection sends the next request
// when it has received the previous response. The requests use 10,000 keys in random order.
func (c contender) rate(b *testing.B, connections int, d time.Duration) float64 {
	result, err := load.Run(b.Context(), load.Config{
		Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", c.addr) },
		Request: load.NewRequest(c.addr, "/v1/check",
			`{"method":"GET","path":"/api/things/42","attributes":{"user":"u`+load.KeyPlace+`","ip":"203.0.113.9"}}`,
			10_000, c.header),
		Connections: connections, Duration: d,
	})
	if err != nil || result.Allowed != result.Requests || result.Err != nil {
		b.Fatalf("%s: %+v, %v", c.name, result, err)
	}
	return float64(result.Requests) / result.Elapsed.Seconds()
}
