package plans

import (
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// A number that cannot be read is none, and not 0.
func TestUnreadableNumbersAreNotSaidAloud(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ quota, burst, want string }{
		{"120", "20", "120 per minute, bursts of 20"},
		{"0", "", "none: every request is denied"},
		{"12o", "", "not readable yet: requests must be a whole number, like 120 or 1,200"},
		{"-", "20", "not readable yet: requests must be a whole number, like 120 or 1,200"},
		{"120", "x", "not readable yet: burst must be a whole number, like 120 or 1,200"},
		{"", "", ""},
	} {
		f := formOf(plans.New(plans.Content{Policies: []plans.Policy{{Slug: "a", Limits: []enforcement.Limit{{Algorithm: enforcement.GCRA, Quota: 1, Window: time.Minute}}}}}))
		f.policies[0].limits[0]["quota"], f.policies[0].limits[0]["burst"] = test.quota, test.burst
		m := marker{errors: map[string]string{}}
		if got := m.policy(&f, 0, f.read().document.Policies()).Aloud; got != test.want {
			t.Errorf("%q, burst %q: %q, want %q", test.quota, test.burst, got, test.want)
		}
	}
}

func TestLineOf(t *testing.T) {
	t.Parallel()
	text := "{\n  \"name\": \"x\",\n  \"policies\": [\n    {\n      \"slug\": \"a\",\n      \"match\": {\"attributes\": {\n        \"a/b\": \"1\"\n      }},\n      \"limits\": [\n        {\"quota\": 1},\n        {\"quota\":\n           2}\n      ]\n    }\n  ]\n}"
	for pointer, want := range map[string]int{
		"": 1, "/name": 2, "/policies": 3, "/policies/0": 4, "/policies/0/slug": 5, "/policies/0/match/attributes/a~1b": 7,
		"/policies/0/limits/0/quota": 10, "/policies/0/limits/1/quota": 12, "/policies/0/limits/1/window": 11, "/policies/4": 3, "/none": 1,
	} {
		if got := lineOf(text, pointer); got != want {
			t.Errorf("%s is on line %d, want %d", pointer, got, want)
		}
	}
	if got := lineOf("{\n\"name\": \"x\",\n}", ""); got < 1 || got > 3 {
		t.Errorf("a syntax error is on line %d", got)
	}
	if got := lineOf("{\n\"a\": 1,\n\"b\" 2\n}", "/b"); got != 3 {
		t.Errorf("a missing colon is on line %d", got)
	}
}
