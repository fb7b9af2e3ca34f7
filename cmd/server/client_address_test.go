package main

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// The client is the last address that is not in a trusted network. The test uses every form in
// which proxies write addresses.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		remote string
		header []string
		want   string
	}{
		{"203.0.113.1:1234", nil, "203.0.113.1"},
		{"[2001:db8::1]:1234", nil, "2001:db8::1"},
		{"10.0.0.1:1234", nil, "10.0.0.1"},
		{"203.0.113.1:1234", []string{"198.51.100.7"}, "203.0.113.1"},
		{"10.0.0.1:1234", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"10.0.0.1:1234", []string{"[2001:db8::7]"}, "2001:db8::7"},
		{"10.0.0.1:1234", []string{"2001:db8::7"}, "2001:db8::7"},
		{"10.0.0.1:1234", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"203.0.113.66, 198.51.100.7, 10.0.0.2:80"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"203.0.113.66, 198.51.100.7", "10.0.0.2"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"10.0.0.3,10.0.0.2"}, "10.0.0.3"},
		{"10.0.0.1:1234", []string{"unknown, 10.0.0.2"}, "unknown"},
		{"10.0.0.1:1234", []string{"198.51.100.7, _hidden"}, "unknown"},
		{"10.0.0.1:1234", []string{"198.51.100.7, ,"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{"junk, 198.51.100.7, 10.0.0.2"}, "198.51.100.7"},
		{"[fd00::1]:1234", []string{"198.51.100.7"}, "198.51.100.7"},
		{"10.0.0.1:1234", []string{""}, "10.0.0.1"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{"X-Forwarded-For": c.header}}
		if got := clientAddress(clientIP("10.0.0.0/8, fd00::/8", slog.New(slog.DiscardHandler)))(r); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.remote, c.header, got, c.want)
		}
	}
}

// Headers of proxies that are not trusted are logged once.
func TestForwardedFromUntrusted(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{"X-Forwarded-For": 1, "Forwarded": 1, "X-Real-Ip": 1, "User-Agent": 0} {
		var out bytes.Buffer
		address := clientAddress(clientIP("", slog.New(slog.NewTextHandler(&out, nil))))
		for range 3 {
			address(&http.Request{RemoteAddr: "172.16.0.1:1", Header: http.Header{name: {"198.51.100.7"}}})
		}
		if got := strings.Count(out.String(), "HEADGATE_TRUSTED_PROXIES"); got != want {
			t.Errorf("%s is logged %d times: %s", name, got, &out)
		}
	}
}
