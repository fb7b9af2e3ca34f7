package enforcement

import (
	"strings"
	"testing"
)

func TestCanonicalIP(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"192.0.2.1":                              "192.0.2.1",
		"::ffff:192.0.2.1":                       "192.0.2.1",
		"::FFFF:c000:0201":                       "192.0.2.1",
		"2001:DB8:0:0::1":                        "2001:db8::1",
		"2001:0db8:0000:0000:0000:0000:0000:001": "2001:db8::1",
		"::":                                     "::",
		"::1":                                    "::1",
		"::192.0.2.1":                            "::c000:201",
		"0.0.0.0":                                "0.0.0.0",
	} {
		addr, got, err := CanonicalIP(value)
		if err != nil || got != want || addr.String() != want {
			t.Errorf("CanonicalIP(%q) = %v, %q, %v; want %q", value, addr, got, err, want)
		}
	}
	for _, value := range []string{
		"", " ", "localhost", "192.0.2.1:80", "[::1]", "[::1]:80", "fe80::1%eth0", "::ffff:192.0.2.1%1", "192.0.2.0/24", "2001:db8::/64",
		"192.0.2.01", "192.0.2", "192.0.2.256", "1", "0x7f000001", " 192.0.2.1", "192.0.2.1\n", ":::1", strings.Repeat("1", 2000),
	} {
		if addr, got, err := CanonicalIP(value); err == nil {
			t.Errorf("CanonicalIP(%q) = %v, %q", value, addr, got)
		} else if len(err.Error()) > 300 {
			t.Errorf("CanonicalIP of %d bytes repeats them in its error", len(value))
		}
	}
}
