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

func TestParseNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.1":               "192.0.2.1",
		"192.0.2.1/32":            "192.0.2.1",
		"192.0.2.0/24":            "192.0.2.0/24",
		"0.0.0.0/0":               "0.0.0.0/0",
		"::ffff:192.0.2.1":        "192.0.2.1",
		"::ffff:192.0.2.0/120":    "192.0.2.0/24",
		"::ffff:c000:200/128":     "192.0.2.0",
		"::ffff:0:0/96":           "0.0.0.0/0",
		"2001:DB8::1":             "2001:db8::1",
		"2001:DB8:0::/32":         "2001:db8::/32",
		"2001:db8::1/128":         "2001:db8::1",
		"::/0":                    "::/0",
		"2001:db8:0:1:0:0:0:0/64": "2001:db8:0:1::/64",
	} {
		network, got, err := ParseNetwork(text)
		if err != nil || got != want || network != network.Masked() {
			t.Errorf("ParseNetwork(%q) = %v, %q, %v; want %q", text, network, got, err, want)
		}
		if again, same, err := ParseNetwork(got); again != network || same != got || err != nil {
			t.Errorf("ParseNetwork(%q) = %v, %q, %v: not what it was made from", got, again, same, err)
		}
	}
	for text, hint := range map[string]string{
		"192.0.2.1/24":                   "write 192.0.2.0/24",
		"2001:db8::1/64":                 "write 2001:db8::/64",
		"::ffff:192.0.2.1/120":           "write 192.0.2.0/24",
		"::ffff:0:0/95":                  "write it as IPv4",
		"192.0.2.0/33":                   "is not a network",
		"192.0.2.0/-1":                   "is not a network",
		"192.0.2.0/024":                  "is not a network",
		"192.0.2.0/":                     "is not a network",
		"/24":                            "is not a network",
		"192.0.2/24":                     "is not a network",
		"2001:db8::/129":                 "is not a network",
		"fe80::%eth0/64":                 "is not a network",
		"192.0.2.0/255.255.0.0":          "is not a network",
		"":                               "is not an IP address",
		"example.com":                    "is not an IP address",
		strings.Repeat("1", 2000) + "/8": "is not a network",
	} {
		network, got, err := ParseNetwork(text)
		if err == nil || !strings.Contains(err.Error(), hint) || len(err.Error()) > 300 {
			t.Errorf("ParseNetwork(%.40q) = %v, %q, %v; want %q", text, network, got, err, hint)
		}
	}
}
