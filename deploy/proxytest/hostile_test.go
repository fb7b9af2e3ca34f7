package proxytest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A client cannot pass a limit that is used up, or end the gateway, by what it puts into a request. The header Host: api
// stands for the address of the gateway.
func TestRecipesDenyHostileRequests(t *testing.T) {
	requests := map[string]string{
		"a header that is not UTF-8": "POST /v1/login HTTP/1.1\r\nHost: api\r\nX-User-Id: \xff\r\nContent-Length: 0\r\n\r\n",
		"a query that is not UTF-8":  "POST /v1/login?\xff\xfe HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n\r\n",
		"a cookie that is not UTF-8": "POST /v1/login HTTP/1.1\r\nHost: api\r\nCookie: a=\xc0\xaf\r\nContent-Length: 0\r\n\r\n",
		"a host that is not UTF-8":   "POST /v1/login HTTP/1.1\r\nHost: a\xffb\r\nContent-Length: 0\r\n\r\n",
		"a user of 2 kB":             "POST /v1/login HTTP/1.1\r\nHost: api\r\nX-User-Id: " + strings.Repeat("x", 2000) + "\r\nContent-Length: 0\r\n\r\n",
		"a query of 9 kB":            "POST /v1/login?" + strings.Repeat("x", 9000) + " HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n\r\n",
		"users":                      "POST /v1/login HTTP/1.1\r\nHost: api\r\n" + strings.Repeat("X-User-Id: u\r\n", 40) + "Content-Length: 0\r\n\r\n",
	}
	for _, n := range []int{75, 80, 85, 90, 95, 97, 99, 150, 1000} {
		requests[fmt.Sprint(n, " headers")] = "POST /v1/login HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n" + strings.Repeat("a: b\r\n", n) + "\r\n"
		requests[fmt.Sprint(n, " names")] = "POST /v1/login HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n" + names(n) + "\r\n"
	}
	for _, n := range []int{12000, 14000, 14800, 15000, 15200, 15300, 15500, 16000, 16300, 25000, 29000, 40000, 70000} {
		requests[fmt.Sprint("headers of ", n)] = "POST /v1/login HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n" +
			strings.Repeat("a: "+strings.Repeat("b", n/4-5)+"\r\n", 4) + "\r\n"
		requests[fmt.Sprint("60 headers of ", n)] = "POST /v1/login HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\n" +
			strings.Repeat("a: "+strings.Repeat("b", n/60-5)+"\r\n", 60) + "\r\n"
	}
	for _, g := range gateways {
		t.Run(g.Name, func(t *testing.T) {
			t.Parallel()
			url := g.serveWithHeadgate(t)
			for range 5 {
				if a, text := send(t, url+"/v1/login", ""); a.StatusCode != 200 {
					t.Fatalf("%d %q", a.StatusCode, text)
				}
			}
			for name, request := range requests {
				address := strings.TrimPrefix(url, "http://")
				status, err := exchange(address, strings.Replace(request, "Host: api", "Host: "+address, 1))
				if err != nil || status < 400 || status > 499 {
					t.Errorf("%s: %d, %v", name, status, err)
				}
			}
			if a, text := send(t, url+"/v1/login", ""); a.StatusCode != 429 {
				t.Errorf("after these: %d %q", a.StatusCode, text)
			}
		})
	}
}

// names returns n headers with different names.
func names(n int) string {
	var all strings.Builder
	for i := range n {
		_, _ = fmt.Fprintf(&all, "x-%d: b\r\n", i)
	}
	return all.String()
}

// exchange sends the bytes of a request, and returns the status of the answer.
func exchange(address, request string) (int, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(deadline))
	if _, err := conn.Write([]byte(request)); err != nil {
		return 0, err
	}
	a, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	_ = a.Body.Close()
	return a.StatusCode, nil
}
