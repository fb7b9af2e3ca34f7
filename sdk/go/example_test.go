package headgate_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	headgate "github.com/headgate/headgate/sdk/go"
)

// server stands for Headgate, so that the examples run.
func server() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind": "decision", "allowed": true, "decision_id": "d-1", "tenant": "acme", "mode": "enforce", "reason": "ok",
			"retry_after_ms": 0, "delay_ms": 0, "degraded": false, "limits": []}`)
	}))
}

func ExampleClient_Check() {
	headgateServer := server()
	defer headgateServer.Close()

	client, err := headgate.New(headgate.Config{URL: headgateServer.URL, Token: "hg_op_x", Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	decision := client.Check(context.Background(), headgate.CheckRequest{
		Tenant: "acme", Method: "POST", Path: "/v1/login",
		Attributes: map[string]string{"ip": "203.0.113.9"},
	})
	fmt.Println(decision.Allowed, decision.Reason)
	// Output: true ok
}

func ExampleMiddleware() {
	headgateServer := server()
	defer headgateServer.Close()

	client, err := headgate.New(headgate.Config{URL: headgateServer.URL, Token: "hg_op_x", Timeout: 5 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	limit := headgate.Middleware(headgate.MiddlewareConfig{
		Client:     client,
		Tenant:     func(r *http.Request) string { return r.Header.Get("X-Customer") },
		Attributes: func(r *http.Request) map[string]string { return map[string]string{"user": r.Header.Get("X-User")} },
	})
	api := httptest.NewServer(limit(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})))
	defer api.Close()
	response, err := http.Get(api.URL + "/v1/items")
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	fmt.Println(response.StatusCode, string(text))
	// Output: 200 hello
}
