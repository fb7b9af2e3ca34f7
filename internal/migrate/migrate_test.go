package migrate_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/internal/migrate"
	"github.com/headgate/headgate/internal/testseed"
)

func TestMain(m *testing.M) { testseed.Main(m) }

var update = flag.Bool("update", false, "write the golden files")

// Each file becomes the plans and the notes of its golden file. TestImport of cmd/server applies
// the same files to a server.
func TestRead(t *testing.T) {
	t.Parallel()
	for file, format := range map[string]string{
		"envoy.yaml": "envoy", "kong.yaml": "kong", "aws.json": "aws", "nginx.conf": "nginx", "nginx-dump.conf": "nginx",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			is, notes, err := migrate.Read(format, file, "", text)
			if err != nil {
				t.Fatal(err)
			}
			plans, err := json.MarshalIndent(is, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for _, n := range notes {
				fmt.Fprintln(&got, n)
			}
			fmt.Fprintf(&got, "\n%s\n", plans)
			golden := filepath.Join("testdata", file+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// The error of a file that cannot be read names the line.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ format, text, want string }{
		{"envoi", "", "must be one of aws, envoy, kong, nginx"},
		{"envoy", "", "is empty"},
		{"envoy", "- a\n", "line 1: must be an object"},
		{"envoy", "descriptors: []\n", "line 1: has no domain"},
		{"envoy", "domain: d\ndescriptors:\n  - value: x\n", "line 3: the descriptor has no key"},
		{"envoy", "domain: d\ndescriptors:\n  - key: x\n    rate_limit: {unit: day}\n", "line 4: rate_limit has no requests_per_unit"},
		{"envoy", "domain: d\ndescriptors:\n  - key: x\n    rate_limit: {unit: day, requests_per_unit: -1}\n", `line 4: "-1" is not a number`},
		{"envoy", "domain: d\n", "found no rate limit of envoy"},
		{"envoy", "domain: [\n", "line"},
		{"kong", "services: []\n", "line 1: has no _format_version"},
		{"kong", "_format_version: '3.0'\nplugins:\n- name: rate-limiting-advanced\n  config: {limit: [1], window_size: []}\n", "line 3: limit has 1 numbers"},
		{"kong", "_format_version: '3.0'\nplugins:\n- name: rate-limiting\n", "found no rate limit of kong"},
		{"aws", "{}", "line 1: has no name"},
		{"aws", `{"items": [{"name": "x", "throttle": {}}]}`, "rateLimit must be"},
		{"aws", `{"items": [{"name": "x", "quota": {"period": "DAY"}}]}`, "quota has no limit"},
		{"nginx", "http {\n", "ends in a directive or a block"},
		{"nginx", "http {}\n}\n", "line 2: unexpected }"},
		{"nginx", "{}", "unexpected {"},
		{"nginx", "a 'b", "is not closed"},
		{"nginx", "a ${b", "has no }"},
		{"nginx", "http {\n location { }\n}", "location has no path"},
		{"nginx", "http {\n limit_req_zone $a zone=one:1m rate=1r/h;\n}", "line 2: limit_req_zone needs"},
		{"nginx", "http {\n limit_req zone=none;\n}", `line 2: there is no limit_req_zone "none"`},
		{"nginx", "limit_req_zone $a zone=one:1m rate=1r/s;\nlimit_req zone=one burst=x;", "line 2: burst"},
		{"nginx", "events {}", "found no rate limit of nginx"},
	} {
		if _, _, err := migrate.Read(c.format, "file", "", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: %v, want %q", c.format, c.text, err, c.want)
		}
	}
	if _, _, err := migrate.Read("aws", "file", "one", read(t, "aws.json")); err == nil || !strings.Contains(err.Error(), "has 3 plans") {
		t.Errorf("--plan for three plans: %v", err)
	}
	is, _, err := migrate.Read("nginx", "file", "edge", read(t, "nginx.conf"))
	if _, ok := is.Plans["edge"]; !ok || err != nil {
		t.Errorf("--plan: %v, %v", is, err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// No input makes a reader panic.
func FuzzRead(f *testing.F) {
	for file, format := range map[string]string{"envoy.yaml": "envoy", "kong.yaml": "kong", "aws.json": "aws", "nginx.conf": "nginx"} {
		text, err := os.ReadFile(filepath.Join("testdata", file))
		f.Add(format, text)
		if err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, format string, text []byte) {
		is, _, err := migrate.Read(format, "file", "", text)
		if err == nil && len(is.Plans) == 0 {
			t.Error("no plan and no error")
		}
	})
}
