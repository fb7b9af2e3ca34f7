package main

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNodeNames(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"0.0.0.0:8080": host + ":8080", "[::]:8080": host + ":8080",
		"127.0.0.1:8080": host + " (127.0.0.1:8080)", "[2001:db8::1]:80": host + " ([2001:db8::1]:80)",
	} {
		at, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := nodeName(at); got != want {
			t.Errorf("%s is called %q, want %q", addr, got, want)
		}
	}
}

func TestReasonsAreShortInReports(t *testing.T) {
	t.Parallel()
	if got := brief(errors.New("short")); got != "short" {
		t.Errorf("%q", got)
	}
	for _, long := range []string{strings.Repeat("a", 5000), "a" + strings.Repeat("ü", 5000)} {
		if got := brief(errors.New(long)); len(got) > 310 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	}
}
