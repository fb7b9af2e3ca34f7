package enforcement

import (
	"strings"
	"testing"
)

func TestNormalizePath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/":                        "/",
		"/a":                       "/a",
		"/a/":                      "/a",
		"/a//b":                    "/a/b",
		"//":                       "/",
		"///a///":                  "/a",
		"//host/path":              "/host/path",
		"/a/./b/../c":              "/a/c",
		"/.":                       "/",
		"/a/..":                    "/",
		"/a/../":                   "/",
		"/a//../b":                 "/b",
		"/a/%2e%2e/b":              "/b",
		"/a/.%2E/b":                "/b",
		"/a/%2e/b":                 "/a/b",
		"/a/...":                   "/a/...",
		"/a/..b":                   "/a/..b",
		"/a?b=c":                   "/a",
		"/a#b?c":                   "/a",
		"/?":                       "/",
		"/a/?":                     "/a",
		"/a?\\\x00":                "/a",
		"/A/a":                     "/A/a",
		"/%41%61%7e%2d%5f":         "/Aa~-_",
		"/a%2fb":                   "/a%2Fb",
		"/a%2Fb":                   "/a%2Fb",
		"/a/%2f/..":                "/a",
		"/%3b;=":                   "/%3B;=",
		"/a;v=1/b":                 "/a;v=1/b",
		"/a/..;/b":                 "/a/..;/b",
		"/%2541":                   "/%2541",
		"/a%252eb":                 "/a%252eb",
		"/a%252fb":                 "/a%252fb",
		"/100%25":                  "/100%25",
		"/100%25zz":                "/100%25zz",
		"/a%3fb%23":                "/a%3Fb%23",
		"/é":                       "/%C3%A9",
		"/%c3%a9":                  "/%C3%A9",
		"/\xff":                    "/%FF",
		"/%e9":                     "/%E9",
		"/a b":                     "/a%20b",
		"/a%20b":                   "/a%20b",
		"/{a}[0]|^`\"<>":           "/%7Ba%7D%5B0%5D%7C%5E%60%22%3C%3E",
		"/!$&'()*+,;=:@-._~":       "/!$&'()*+,;=:@-._~",
		"/users/42/orders":         "/users/42/orders",
		"/a/b/c/../../d/./e//f/..": "/a/d/e",
	} {
		got, err := NormalizePath(path)
		if err != nil || got != want {
			t.Errorf("NormalizePath(%q) = %q, %v; want %q", path, got, err, want)
		}
		if again, err := NormalizePath(got); err != nil || again != got {
			t.Errorf("NormalizePath(%q) = %q, %v; want itself", got, again, err)
		}
	}
}

func TestNormalizePathRefuses(t *testing.T) {
	t.Parallel()
	for path, reason := range map[string]string{
		"":                    "begin with /",
		"a":                   "begin with /",
		"*":                   "begin with /",
		"?/a":                 "begin with /",
		"http://h/a":          "begin with /",
		"/..":                 "climbs",
		"/a/../..":            "climbs",
		"/%2e%2e":             "climbs",
		"/./..":               "climbs",
		"/a\\b":               "backslash",
		"/a%5cb":              "backslash",
		"/a%5Cb":              "backslash",
		"/a/..\\b":            "backslash",
		"/a\x00":              "control",
		"/a%00":               "control",
		"/a%0d%0a":            "control",
		"/\t":                 "control",
		"/a\x7f":              "control",
		"/a%7F":               "control",
		"/%":                  "not an escape",
		"/a%4":                "not an escape",
		"/a%4/b":              "not an escape",
		"/a%zz":               "not an escape",
		"/a%u0041":            "not an escape",
		"/a%%41":              "not an escape",
		"/a/..%2f":            "hides",
		"/a/..%2Fb":           "hides",
		"/a/%2e%2e%2fb":       "hides",
		"/a/b%2f..":           "hides",
		"/a/b%2F.":            "hides",
		"/a/.%2fb":            "hides",
		"/a/x%2f..%2fb":       "hides",
		"/a/%252e":            "hides",
		"/a/%252e%252e/b":     "hides",
		"/a/%25252e%25252e/b": "hides",
		"/a/..%252f":          "hides",
		"/a/.%252e":           "hides",
		"/a/..%255cb":         "hides",
		"/a/%25%32%65":        "hides",
		"/a/%c0%af":           "overlong",
		"/a/%c0%ae%c0%ae/b":   "overlong",
		"/a/\xc0\xae":         "overlong",
		"/a/%e0%80%ae":        "overlong",
		"/a/%f0%80%80%ae":     "overlong",
		"/a/%25c0%25ae":       "overlong",
	} {
		got, err := NormalizePath(path)
		if err == nil {
			t.Errorf("NormalizePath(%q) = %q; want an error with %q", path, got, reason)
		} else if !strings.Contains(err.Error(), reason) {
			t.Errorf("NormalizePath(%q): %q; want an error with %q", path, err, reason)
		}
	}
}

func TestNormalizePathAllocatesNothingForANormalPath(t *testing.T) {
	for _, path := range []string{"/", "/api/v1/users/42", "/a%20b/c%2Fd", "/" + strings.Repeat("x/", 500) + "y"} {
		if n := testing.AllocsPerRun(20, func() { _, _ = NormalizePath(path) }); n != 0 {
			t.Errorf("NormalizePath(%.20q) allocates %v times", path, n)
		}
	}
}

// A hostile path of many layers of escapes must not cost the square of its length.
func TestNormalizePathUnwrapsManyLayers(t *testing.T) {
	t.Parallel()
	layers := strings.Repeat("25", 1<<20)
	if _, err := NormalizePath("/a/%" + layers + "2e"); err == nil {
		t.Error("a dot under a million layers of escapes passes")
	}
	if _, err := NormalizePath("/a/x%" + layers + "2e"); err != nil {
		t.Errorf("a dot within a segment: %v", err)
	}
}

func FuzzNormalizePath(f *testing.F) {
	for _, seed := range []string{"/", "/a/./b/../c", "/a%2fb", "/%252e%252e/", "/é?x#y", "//", "/a\\", "/%C0%AE", "/a;b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		got, err := NormalizePath(path)
		if err != nil {
			if got != "" {
				t.Fatalf("%q: %q beside error %v", path, got, err)
			}
			return
		}
		if again, err := NormalizePath(got); err != nil || again != got {
			t.Fatalf("%q became %q became %q (%v)", path, got, again, err)
		}
		if got[0] != '/' || got != "/" && strings.HasSuffix(got, "/") || strings.Contains(got, "//") || strings.ContainsAny(got, "?#\\") {
			t.Fatalf("%q became %q", path, got)
		}
		for i := range len(got) {
			if got[i] <= ' ' || got[i] >= 0x7F {
				t.Fatalf("%q became %q", path, got)
			}
		}
		for _, segment := range strings.Split(got[1:], "/") {
			for _, part := range strings.Split(decodeOverAndOver(segment), "/") {
				if part == "." || part == ".." {
					t.Fatalf("%q became %q, which hides %q", path, got, part)
				}
			}
		}
	})
}

// decodeOverAndOver does the same as uncovers in a simple and slow way.
func decodeOverAndOver(s string) string {
	for {
		var b strings.Builder
		for i := 0; i < len(s); i++ {
			if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
				b.WriteByte(unhex(s[i+1])<<4 | unhex(s[i+2]))
				i += 2
				continue
			}
			b.WriteByte(s[i])
		}
		if b.String() == s {
			return s
		}
		s = b.String()
	}
}
