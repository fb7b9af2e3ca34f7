package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/metrics"
	"sync"
	"syscall"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/strictjson"
	sdk "github.com/headgate/headgate/sdk/go"
)

// leanScript implements GCRA with as few Redis commands as possible. It stores one integer, and
// writes nothing if it denies. ARGV[1] is the number of microseconds per unit. ARGV[2] is the burst
// in microseconds.
const leanScript = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local tat = tonumber(redis.call('GET', KEYS[1])) or now
if tat < now then tat = now end
tat = tat + ARGV[1]
local wait = tat - now - ARGV[2]
if wait > 0 then return -wait end
redis.call('SET', KEYS[1], string.format('%d', tat), 'PX', string.format('%d', (tat - now) / 1000 + 1))
return 1`

// serve runs the command serve: the service noop or the service direct. Both services decode the
// body as Headgate does, and answer with a recorded response of Headgate. direct also calls Redis
// once for each check. In the group ways, noop is also the API behind the gateways.
func serve(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	answers := flags.String("answers", "", "folder with the answers single and batch")
	url := flags.String("redis", "", "URL of the Redis that each check asks; empty: none")
	headgate := flags.String("headgate", "", "URL of the Headgate that the middleware of the SDK asks; empty: no middleware")
	if err := flags.Parse(args); err != nil {
		return err
	}
	single, err := os.ReadFile(*answers + "/single")
	if err != nil {
		return err
	}
	batch, err := os.ReadFile(*answers + "/batch")
	if err != nil {
		return err
	}
	take := func(context.Context, string) error { return nil }
	if *url != "" {
		if take, err = directTake(*url); err != nil {
			return err
		}
	}
	e := echo.New()
	e.POST("/v1/check", answer(single, take, decodeOne))
	e.POST("/v1/check/batch", answer(batch, take, decodeBatch))
	e.GET("/metrics", func(c echo.Context) error {
		sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
		metrics.Read(sample)
		return c.String(http.StatusOK, fmt.Sprintf("go_memstats_mallocs_total %d\n", sample[0].Value.Uint64()))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	handler, err := checked(e, *headgate)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Printf("serves %s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// checked wraps the handler in the middleware of the SDK for Go. If url is empty, it returns the
// handler itself. The API key is in the environment.
func checked(handler http.Handler, url string) (http.Handler, error) {
	if url == "" {
		return handler, nil
	}
	client, err := sdk.New(sdk.Config{URL: url, Token: os.Getenv(senderKey), OnUnreachable: sdk.Closed})
	if err != nil {
		return nil, err
	}
	return sdk.Middleware(sdk.MiddlewareConfig{Client: client, Attributes: func(r *http.Request) map[string]string {
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		return map[string]string{"ip": ip}
	}})(handler), nil
}

// directTake returns a function that runs leanScript once for each check.
func directTake(url string) (func(context.Context, string) error, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	client, script := redis.NewClient(o), redis.NewScript(leanScript)
	if err := script.Load(context.Background(), client).Err(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, user string) error {
		left, err := script.EvalSha(ctx, client, []string{"direct:" + user}, unitMicros, unitMicros*quota).Int64()
		if err == nil && left < 0 {
			err = errors.New("denied")
		}
		return err
	}, nil
}

var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// answer returns a handler that decodes the body with decode, calls take with the user of each
// check, and always sends the response text.
func answer(text []byte, take func(context.Context, string) error, decode func(*strictjson.Decoder, func(string))) echo.HandlerFunc {
	return func(c echo.Context) error {
		body := bodies.Get().(*bytes.Buffer)
		defer bodies.Put(body)
		body.Reset()
		if _, err := io.Copy(body, c.Request().Body); err != nil {
			return err
		}
		var d strictjson.Decoder
		d.Reset(body.String(), strictjson.MaxDepth)
		var failed error
		decode(&d, func(user string) { failed = errors.Join(failed, take(c.Request().Context(), user)) })
		if err := errors.Join(d.End(), failed); err != nil {
			return err
		}
		return c.Blob(http.StatusOK, "application/json", text)
	}
}

// decodeOne decodes the body of a request with one check, and calls each with the user of the
// check.
func decodeOne(d *strictjson.Decoder, each func(user string)) {
	user := ""
	for name := range d.Members() {
		switch name {
		case "method", "path":
			_ = d.Text()
		case "attributes":
			for name := range d.Members() {
				if value := d.Text(); name == "user" {
					user = value
				}
			}
		default:
			d.Unknown()
		}
	}
	each(user)
}

func decodeBatch(d *strictjson.Decoder, each func(user string)) {
	for name := range d.Members() {
		if name != "checks" {
			d.Unknown()
			continue
		}
		for range d.Elements() {
			decodeOne(d, each)
		}
	}
}
