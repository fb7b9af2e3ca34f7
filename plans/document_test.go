package plans

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
)

func TestDocumentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := validDocument().Draw(t, "document")
		text, err := New(d).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(canonical(d), got); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
		again, err := New(got).MarshalJSON()
		if err != nil || string(again) != string(text) {
			t.Fatalf("encoded twice: %v\n%s\n%s", err, text, again)
		}
		if strings.Contains(string(text), "null") {
			t.Fatalf("null in %s", text)
		}
	})
}

func TestEncodeDocument(t *testing.T) {
	t.Parallel()
	text, err := Sample().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"name":"Starter",`,
		`{"slug":"login-per-ip","description":"Slows down password guessing.","match":{"methods":["POST"],"path":"/v1/login","attributes":{}},"count_by":["ip"],"missing":"shared","replaces":[],"mode":"enforce","on_failure":"local","consistency":"exact","limits":[{"name":"l1","algorithm":"sliding_window_log","quota":5,"window":"1m"}]}`,
		`"limits":[{"name":"l1","algorithm":"sliding_window_counter","quota":120,"window":"1m","anchor":"first_hit"}]`,
		`"limits":[{"name":"l1","algorithm":"token_bucket","quota":10,"window":"1s","burst":20}]`,
		`"match":{"methods":[],"path":"*","attributes":{}},"count_by":[]`,
		`"limits":[{"name":"l1","algorithm":"fixed_window","quota":100000,"window":"1h","anchor":"first_hit"}]`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s\nlacks %s", text, want)
		}
	}
}

func TestDecodeOnlyWhatIsRequired(t *testing.T) {
	t.Parallel()
	d, err := decode([]byte(` {"name": "Pro", "policies": [{"slug": "a", "limits": [{"algorithm": "gcra", "quota": 1, "window": "1s"}]}]} `))
	if err != nil {
		t.Fatal(err)
	}
	if err := (Document{d}).Validate(); err != nil {
		t.Fatal(err)
	}
	if d.Policies[0].Limits[0].Name != "l1" || d.Policies[0].Match.Path != "*" {
		t.Errorf("not normalised: %+v", d)
	}
}

// at gives the kind and the places at fault.
func at(t *testing.T, err error) (problem.Kind, []string) {
	t.Helper()
	var p *problem.Problem
	if !errors.As(err, &p) {
		t.Fatalf("%v: no problem", err)
	}
	var out []string
	for _, f := range p.Fields {
		out = append(out, f.Pointer)
	}
	return p.Kind, out
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	policy := func(s string) string {
		return `{"name":"Pro","policies":[{"slug":"a","limits":[{"algorithm":"gcra","quota":1,"window":"1s"}]},` + s + `]}`
	}
	limit := func(s string) string { return policy(`{"slug":"b","limits":[` + s + `]}`) }
	for _, c := range []struct {
		name, text string
		kind       problem.Kind
		at         []string
	}{
		{"nothing", ``, problem.Malformed, nil},
		{"array", `[]`, problem.Malformed, []string{""}},
		{"null", `null`, problem.Malformed, []string{""}},
		{"two documents", `{"name":"a"} {}`, problem.Malformed, nil},
		{"name missing", `{}`, problem.Malformed, []string{"/name"}},
		{"name of a wrong type", `{"name":1}`, problem.Malformed, []string{"/name"}},
		{"name in a wrong case", `{"Name":"a"}`, problem.Malformed, []string{"/Name"}},
		{"unknown member", `{"name":"a","id":"x"}`, problem.Malformed, []string{"/id"}},
		{"duplicate member", `{"name":"a","name":"b"}`, problem.Malformed, []string{"/name"}},
		{"policies null", `{"name":"a","policies":null}`, problem.Malformed, []string{"/policies"}},
		{"policies an object", `{"name":"a","policies":{}}`, problem.Malformed, []string{"/policies"}},
		{"slug missing", policy(`{"limits":[]}`), problem.Malformed, []string{"/policies/1/slug"}},
		{"limits missing", policy(`{"slug":"b","replaces":["a"]}`), problem.Malformed, []string{"/policies/1/limits"}},
		{"mode a number", policy(`{"slug":"b","mode":1,"limits":[]}`), problem.Malformed, []string{"/policies/1/mode"}},
		{"mode empty", policy(`{"slug":"b","mode":"","replaces":["a"],"limits":[]}`), problem.Invalid, []string{"/policies/1/mode"}},
		{"unknown in match", policy(`{"slug":"b","match":{"method":"GET"},"limits":[]}`), problem.Malformed, []string{"/policies/1/match/method"}},
		{"attribute a number", policy(`{"slug":"b","match":{"attributes":{"a/b":1}},"limits":[]}`), problem.Malformed, []string{"/policies/1/match/attributes/a~1b"}},
		{"attribute twice", policy(`{"slug":"b","match":{"attributes":{"x":"1","x":"1"}},"limits":[]}`), problem.Malformed, []string{"/policies/1/match/attributes/x"}},
		{"too deep", policy(`{"slug":"b","match":{"attributes":{"x":[[[[[1]]]]]}},"limits":[]}`), problem.Malformed, nil},
		{"lone surrogate", `{"name":"\ud800"}`, problem.Malformed, nil},
		{"NUL", `{"name":"\u0000"}`, problem.Malformed, nil},
		{"not UTF-8", "{\"name\":\"\xff\"}", problem.Malformed, nil},
		{"algorithm missing", limit(`{"quota":1,"window":"1s"}`), problem.Malformed, []string{"/policies/1/limits/0/algorithm"}},
		{"quota missing", limit(`{"algorithm":"gcra","window":"1s"}`), problem.Malformed, []string{"/policies/1/limits/0/quota"}},
		{"window missing", limit(`{"algorithm":"gcra","quota":1}`), problem.Malformed, []string{"/policies/1/limits/0/window"}},
		{"quota a fraction", limit(`{"algorithm":"gcra","quota":1.5,"window":"1s"}`), problem.Malformed, []string{"/policies/1/limits/0/quota"}},
		{"quota a text", limit(`{"algorithm":"gcra","quota":"1","window":"1s"}`), problem.Malformed, []string{"/policies/1/limits/0/quota"}},
		{"quota past 64 bits", limit(`{"algorithm":"gcra","quota":99999999999999999999,"window":"1s"}`), problem.Malformed, []string{"/policies/1/limits/0/quota"}},
		{"window a number", limit(`{"algorithm":"gcra","quota":1,"window":60}`), problem.Malformed, []string{"/policies/1/limits/0/window"}},
		{"algorithm unknown", limit(`{"algorithm":"GCRA","quota":1,"window":"1s"}`), problem.Invalid, []string{"/policies/1/limits/0/algorithm"}},
		{"anchor of a queue", limit(`{"algorithm":"leaky_bucket","quota":1,"window":"1s","anchor":"clock"}`), problem.Invalid, []string{"/policies/1/limits/0/anchor"}},
		{"period unknown", limit(`{"algorithm":"gcra","quota":1,"window":"decade"}`), problem.Invalid, []string{"/policies/1/limits/0/window"}},
		{"window too long", limit(`{"algorithm":"gcra","quota":1,"window":"400d"}`), problem.Invalid, []string{"/policies/1/limits/0/window"}},
		{"burst 0", limit(`{"algorithm":"gcra","quota":1,"window":"1s","burst":0}`), problem.Invalid, []string{"/policies/1/limits/0/burst"}},
		{"burst of a window", limit(`{"algorithm":"fixed_window","quota":1,"window":"1s","burst":1}`), problem.Invalid, []string{"/policies/1/limits/0/burst"}},
		{"default anchor of a bucket", limit(`{"algorithm":"gcra","quota":1,"window":"1s","anchor":"first_hit"}`), problem.Invalid, []string{"/policies/1/limits/0/anchor"}},
		{"anchor unknown", limit(`{"algorithm":"fixed_window","quota":1,"window":"1s","anchor":"epoch"}`), problem.Invalid, []string{"/policies/1/limits/0/anchor"}},
		{"limit name empty", limit(`{"name":"","algorithm":"gcra","quota":1,"window":"1s"}`), problem.Invalid, []string{"/policies/1/limits/0/name"}},
		{
			"together with what Validate finds", limit(`{"name":"L","algorithm":"x","quota":-1,"window":"decade"}`), problem.Invalid,
			[]string{"/policies/1/limits/0/algorithm", "/policies/1/limits/0/window", "/policies/1/limits/0/name", "/policies/1/limits/0/quota"},
		},
	} {
		_, err := decode([]byte(c.text))
		if err == nil {
			t.Errorf("%s: taken", c.name)
			continue
		}
		kind, places := at(t, err)
		if kind != c.kind || c.at != nil && !slices.Equal(places, c.at) {
			t.Errorf("%s: %v at %q, want %v at %q", c.name, kind, places, c.kind, c.at)
		}
	}
}

func FuzzParse(f *testing.F) {
	sample, err := Sample().MarshalJSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	for _, text := range []string{
		`{"name":"a","policies":[{"slug":"a","replaces":["a"],"limits":[]}]}`,
		`{"name":"a","policies":[{"slug":"a","match":{"path":"/%2e","attributes":{"ip":"::ffff:1.2.3.4"}},"limits":[{"algorithm":"gcra","quota":1,"window":"9999999999ms","burst":1}]}]}`,
		`{"name":null}`, `{}{}`, `[`, "\xff",
	} {
		f.Add([]byte(text))
	}
	s := NewService(nil, Config{})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decode(data)
		if err != nil {
			if k := problem.Of(err); k != problem.Malformed && k != problem.Invalid {
				t.Fatalf("%v: %v", k, err)
			}
			return
		}
		s.Inspect(New(d))
		if (Document{d}).Validate() != nil {
			return
		}
		text, err := New(d).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(d, again); diff != "" {
			t.Fatalf("round trip (-want +got):\n%s", diff)
		}
	})
}

// canonical returns the content of the canonical document.
func canonical(c Content) Content { return New(c).Content() }

// decode parses a document and returns its content.
func decode(text []byte) (Content, error) {
	d, err := Parse(text)
	return d.c, err
}

// nameLimits returns the limits with their default names.
func nameLimits(limits []enforcement.Limit) []enforcement.Limit {
	return canonical(Content{Policies: []Policy{{Limits: limits}}}).Policies[0].Limits
}
