package exceptions_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/internal/problem"
)

// faults returns the faults of an error as "pointer: message".
func faults(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != problem.Invalid {
		t.Fatalf("%v is no Invalid problem", err)
	}
	var list []string
	for _, field := range p.Fields {
		list = append(list, field.Pointer+": "+field.Message)
	}
	return list
}

// wantFaults checks that each fault begins as it is wanted, in order.
func wantFaults(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		t.Errorf("%s: faults\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestOverrideFaults(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	limits := func(l ...enforcement.OverrideLimit) func(*exceptions.NewOverride) {
		return func(n *exceptions.NewOverride) { n.Factor, n.Limits = 0, l }
	}
	limit := func(name string, quota, burst int64, window time.Duration) enforcement.OverrideLimit {
		return enforcement.OverrideLimit{Name: name, Quota: quota, Burst: burst, Window: window}
	}
	const keep = enforcement.Keep
	for _, test := range []struct {
		what   string
		policy string
		change func(*exceptions.NewOverride)
		want   []string
	}{
		{"all keys", "login", func(*exceptions.NewOverride) {}, nil},
		{"a factor of 1, for who is to be as the plan says", "login", func(n *exceptions.NewOverride) { n.Factor = 1000 }, nil},
		{"an exact value", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "user", "u" }, nil},
		{"IPv4 of ip/64", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip", "192.0.2.1" }, nil},
		{"a /64 of ip/64", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "ip", "2001:db8::/64" }, nil},
		{"IPv6 of ip", "per-ip", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip", "2001:db8::1" }, nil},
		{"a /65 of ip", "per-ip", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "ip", "2001:db8::/65" }, nil},
		{"quota 0", "login", limits(limit("l1", 0, keep, 0)), nil},
		{"a burst that is the quota", "login", limits(limit("l2", keep, 0, 0)), nil},

		{"unknown policy", "nope", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "x", "y" }, []string{"/policy: the tenant's plan has no policy with this slug"}},
		{"no policy", "", func(*exceptions.NewOverride) {}, []string{"/policy: the tenant's plan has no policy"}},
		{"a policy without limits", "exempt", func(*exceptions.NewOverride) {}, []string{"/policy: the policy has no limits"}},
		{"not counted by", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "account", "x" }, []string{"/attribute: must be one that the policy counts by: ip, user"}},
		{"ip/64 is no attribute", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip/64", "x" }, []string{"/attribute: must be one that the policy counts by: ip, user"}},
		{"the whole tenant", "all", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "user", "x" }, []string{"/attribute: the policy counts the whole tenant"}},
		{"a value alone", "login", func(n *exceptions.NewOverride) { n.Value, n.Prefix = "x", "y" }, []string{"/value: goes with attribute", "/prefix: goes with attribute"}},
		{"neither value nor prefix", "login", func(n *exceptions.NewOverride) { n.Attribute = "user" }, []string{"/value: give either value or prefix"}},
		{"both", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value, n.Prefix = "user", "x", "y" }, []string{"/value: give either value or prefix"}},
		{"a long value", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "user", strings.Repeat("x", 1025) }, []string{"/value: must be 1 to 1024 bytes"}},
		{"NUL", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "user", "a\x00" }, []string{"/prefix: must be valid UTF-8 without NUL"}},
		{"not UTF-8", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "user", "\xff" }, []string{"/value: must be valid UTF-8 without NUL"}},
		{"no address", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip", "192.0.2.0/24" }, []string{`/value: "192.0.2.0/24" is not an IP address`}},
		{"a zone", "per-ip", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip", "fe80::1%eth0" }, []string{`/value: "fe80::1%eth0" has a zone`}},
		{"IPv6 of ip/64", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Value = "ip", "2001:db8::1" }, []string{"/value: the policy counts IPv6 addresses by their /64"}},
		{"a /65 of ip/64", "login", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "ip", "2001:db8::/65" }, []string{"/prefix: the policy counts IPv6 addresses by their /64"}},
		{"host bits", "per-ip", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "ip", "192.0.2.1/24" }, []string{`/prefix: "192.0.2.1/24" has bits set`}},
		{"no network", "per-ip", func(n *exceptions.NewOverride) { n.Attribute, n.Prefix = "ip", "192.0.2" }, []string{`/prefix: "192.0.2" is not`}},
		{"no numbers", "login", func(n *exceptions.NewOverride) { n.Factor = 0 }, []string{"/factor: give either factor or limits"}},
		{"both kinds of numbers", "login", func(n *exceptions.NewOverride) { n.Limits = []enforcement.OverrideLimit{limit("l1", 1, keep, 0)} }, []string{"/factor: give either factor or limits, not both"}},
		{"a factor below 0", "login", func(n *exceptions.NewOverride) { n.Factor = -1 }, []string{"/factor: must be a decimal number from 0.001 to 1000"}},
		{"a factor above 1000", "login", func(n *exceptions.NewOverride) { n.Factor = enforcement.MaxFactor + 1 }, []string{"/factor: must be a decimal number from 0.001 to 1000"}},
		{"the largest factor", "login", func(n *exceptions.NewOverride) { n.Factor = enforcement.MaxFactor }, nil},
		{"a burst beyond all bounds", "huge", func(n *exceptions.NewOverride) { n.Factor = 1001 }, []string{"/factor: is too large for limit l1, whose burst must be 1 to 1000000000000"}},
		{"a limit that is not there", "login", limits(limit("l3", 1, keep, 0)), []string{"/limits/0/name: the policy has no limit with this name; it has l1, l2"}},
		{"a limit twice", "login", limits(limit("l1", 1, keep, 0), limit("l1", 2, keep, 0)), []string{"/limits/1/name: is named twice"}},
		{"no number", "login", limits(limit("l1", keep, keep, 0)), []string{"/limits/0: must give at least one"}},
		{"a quota below 0", "login", limits(limit("l2", -2, keep, 0)), []string{"/limits/0/quota: must be 0 to 1000000000000"}},
		{"a log too long", "login", limits(limit("l1", enforcement.MaxLog+1, keep, 0)), []string{"/limits/0/quota: must be 0 to 10000"}},
		{"a burst of a log", "login", limits(limit("l1", keep, 1, 0)), []string{"/limits/0/burst: only token_bucket, gcra"}},
		{"a burst too large", "login", limits(limit("l2", keep, enforcement.MaxQuota+1, 0)), []string{"/limits/0/burst: must be 1 to 1000000000000"}},
		{"a window too long", "login", limits(limit("l1", keep, keep, enforcement.MaxWindow+1)), []string{"/limits/0/window: must be from 1ms to 366d"}},
		{"a window in no unit", "login", limits(limit("l1", keep, keep, time.Millisecond+1)), []string{"/limits/0/window: must be a whole number of"}},
		{"too many limits", "login", limits(make([]enforcement.OverrideLimit, 11)...), []string{"/limits: must be at most 10 limits"}},
		{"no reason", "login", func(n *exceptions.NewOverride) { n.Reason = " " }, []string{"/reason: must have 1 to 500 characters"}},
		{"a reason of two lines", "login", func(n *exceptions.NewOverride) { n.Reason = "a\nb" }, []string{"/reason: must not have control characters"}},
		{"a long reason", "login", func(n *exceptions.NewOverride) { n.Reason = strings.Repeat("ä", 501) }, []string{"/reason: must have 1 to 500 characters"}},
		{"an end that is now", "login", func(n *exceptions.NewOverride) { n.ExpiresAt = f.now }, []string{"/expires_at: must be in the future and not after 2027-03-02T12:00:00Z"}},
		{"an end too far away", "login", func(n *exceptions.NewOverride) { n.ExpiresAt = f.now.Add(exceptions.MaxLife + time.Millisecond) }, []string{"/expires_at: must be in the future and not after 2027-03-02T12:00:00Z"}},
		{"everything at once", "nope", func(n *exceptions.NewOverride) {
			*n = exceptions.NewOverride{Policy: "nope", Value: "x", Limits: []enforcement.OverrideLimit{limit("l1", -2, -2, -1)}, ExpiresAt: f.now}
		}, []string{
			"/policy: ", "/value: goes with", "/limits/0/quota: must be 0 to", "/limits/0/burst: must be 1 to", "/limits/0/window: must be from",
			"/reason: ", "/expires_at: ",
		}},
	} {
		n := exceptions.NewOverride{Policy: test.policy, Factor: 2000, Reason: "a reason"}
		test.change(&n)
		made, err := f.CreateOverride(f.ctx, "acme", n)
		wantFaults(t, test.what, faults(t, err), test.want...)
		if err == nil {
			must(t, f.DeleteOverride(f.ctx, "acme", made.ID))
		}
	}
	_, err := f.CreateOverride(f.ctx, "bare", exceptions.NewOverride{Policy: "login", Factor: 2000, Reason: "r"})
	wantFaults(t, "a tenant without a plan", faults(t, err), "/policy: the tenant has no plan")
}

// The product with a factor is held to the log's bound as well.
func TestFactorOfALog(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	f.plan(t, "long", policy("p", nil, enforcement.Limit{Name: "l1", Algorithm: enforcement.SlidingWindowLog, Quota: 8_001, Window: time.Minute}))
	f.tenant(t, "long", "long")
	for factor, want := range map[int64]string{1_249: "", 1_250: "/factor: is too large for limit l1, whose quota must be 0 to 10000"} {
		_, err := f.CreateOverride(f.ctx, "long", exceptions.NewOverride{Policy: "p", Factor: factor, Reason: "r"})
		// 8001 × 1.249 is 9993.2, and × 1.25 is 10001.25.
		if want == "" {
			wantFaults(t, fmt.Sprint(factor), faults(t, err))
		} else {
			wantFaults(t, fmt.Sprint(factor), faults(t, err), want)
		}
	}
}

func TestEntryFaults(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, test := range []struct {
		what string
		n    exceptions.NewEntry
		want []string
	}{
		{"any attribute", exceptions.NewEntry{List: exceptions.Deny, Attribute: "not counted by", Value: "x"}, nil},
		{"no list", exceptions.NewEntry{Attribute: "user", Value: "x"}, []string{"/list: must be deny or allow"}},
		{"no such list", exceptions.NewEntry{List: "Deny", Attribute: "user", Value: "x"}, []string{"/list: must be deny or allow"}},
		{"no attribute", exceptions.NewEntry{List: exceptions.Deny, Value: "x"}, []string{"/attribute: must be 1 to 64 bytes"}},
		{"a long attribute", exceptions.NewEntry{List: exceptions.Deny, Attribute: strings.Repeat("a", 65), Value: "x"}, []string{"/attribute: must be 1 to 64 bytes"}},
		{"an attribute of two lines", exceptions.NewEntry{List: exceptions.Deny, Attribute: "a\n", Value: "x"}, []string{"/attribute: must be valid UTF-8 without control"}},
		{"ip/64", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip/64", Value: "x"}, []string{"/attribute: must be ip"}},
		{"no value", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user"}, []string{"/value: must be 1 to 1024 bytes"}},
		{"a long value", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: strings.Repeat("x", 1025)}, []string{"/value: must be 1 to 1024 bytes"}},
		{"no address", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "here"}, []string{`/value: "here" is not`}},
		{"no network", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "192.0.2.0/33"}, []string{`/value: "192.0.2.0/33" is not`}},
		{"host bits", exceptions.NewEntry{List: exceptions.Deny, Attribute: "ip", Value: "2001:db8::1/64"}, []string{`/value: "2001:db8::1/64" has bits set`}},
		{"a long reason", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "y", Reason: strings.Repeat("x", 501)}, []string{"/reason: must have at most 500"}},
		{"an end that is over", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "y", ExpiresAt: f.now.Add(time.Microsecond)}, []string{"/expires_at: must be in the future"}},
		{"an end beyond all calendars", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "y", ExpiresAt: f.now.AddDate(9000, 0, 0)}, []string{"/expires_at: must be before the year 10000"}},
		{"everything at once", exceptions.NewEntry{Reason: "\t"}, []string{"/list: ", "/attribute: ", "/value: ", "/reason: "}},
	} {
		_, err := f.CreateEntry(f.ctx, "acme", test.n)
		wantFaults(t, test.what, faults(t, err), test.want...)
	}
	_, err := f.CreateEntry(f.ctx, "nobody", exceptions.NewEntry{List: exceptions.Deny, Attribute: "user", Value: "x"})
	wantKind(t, err, problem.NotFound)
}

func TestKeyFaults(t *testing.T) {
	t.Parallel()
	f := setUp(t)
	for _, test := range []struct {
		what, policy string
		key          map[string]string
		want         []string
	}{
		{"a whole key", "login", map[string]string{"ip": "192.0.2.1", "user": "u"}, nil},
		{"part of a key", "login", map[string]string{"user": "u"}, nil},
		{"the whole tenant", "all", nil, nil},
		{"unknown policy", "nope", map[string]string{"x": "y"}, []string{"/policy: the tenant's plan has no policy"}},
		{"a name too many", "login", map[string]string{"user": "u", "x": "y"}, []string{"/key/x: the policy does not count by this; it counts by ip, user"}},
		{"ip/64 is named ip", "login", map[string]string{"ip/64": "2001:db8::"}, []string{"/key/ip~164: the policy does not count by this"}},
		{"a name of the whole tenant", "all", map[string]string{"user": "u"}, []string{"/key/user: the policy counts the whole tenant"}},
		{"an empty value", "login", map[string]string{"user": ""}, []string{"/key/user: must be 1 to 1024 bytes"}},
		{"a long value", "huge", map[string]string{"a/b": strings.Repeat("x", 1025)}, []string{"/key/a~1b: must be 1 to 1024 bytes"}},
		{"the network of ip/64", "login", map[string]string{"ip": "2001:db8::/64"}, nil},
		{"a smaller one", "login", map[string]string{"ip": "2001:db8::/65"}, []string{`/key/ip: "2001:db8::/65" is not an IP address`}},
		{"one with bits beyond", "login", map[string]string{"ip": "2001:db8::1/64"}, []string{`/key/ip: "2001:db8::1/64" is not an IP address`}},
		{"one where addresses count", "per-ip", map[string]string{"ip": "2001:db8::/64"}, []string{`/key/ip: "2001:db8::/64" is not an IP address`}},
		{"a network", "per-ip", map[string]string{"ip": "192.0.2.0/24"}, []string{`/key/ip: "192.0.2.0/24" is not an IP address`}},
	} {
		_, err := f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{Policy: test.policy, Key: test.key, Reason: "r"})
		wantFaults(t, "block: "+test.what, faults(t, err), test.want...)
		_, err = f.PlanReset(f.ctx, "acme", test.policy, test.key, "")
		wantFaults(t, "reset: "+test.what, faults(t, err), test.want...)
	}
	_, err := f.PlanReset(f.ctx, "bare", "login", nil, "")
	wantFaults(t, "reset without a plan", faults(t, err), "/policy: the tenant has no plan")
	_, err = f.PlanReset(f.ctx, "acme", "login", nil, strings.Repeat("x", 501))
	wantFaults(t, "reset with a long reason", faults(t, err), "/reason: must have at most 500")
	_, err = f.PlanReset(f.ctx, "nobody", "login", nil, "")
	wantKind(t, err, problem.NotFound)
	_, err = f.CreateBlock(f.ctx, "acme", exceptions.NewBlock{Policy: "nope", Key: map[string]string{"ip": "x"}, ExpiresAt: f.now.Add(-1)})
	wantFaults(t, "everything at once", faults(t, err), "/policy: ", "/key/ip: ", "/reason: ", "/expires_at: ")
}

func TestParseFactor(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"1": 1000, "1.5": 1500, "0.001": 1, "1000": 1_000_000, "1000.000": 1_000_000, "0.29": 290, "1.1": 1100, "64.1": 64_100, "2.50000": 2500,
		"": 0, ".5": 0, "1.": 0, "-1": 0, "+1": 0, "01": 0, "1e3": 0, "0": 0, "0.0": 0, "0.0001": 0, "1.0005": 0, "1000.001": 0, "1001": 0,
		"1,5": 0, " 1": 0, "0x1": 0, "1_0": 0, "NaN": 0, "٣": 0, "1.5000000000000000000000000000000000": 0, "99999999999999999999": 0,
	} {
		got, err := exceptions.ParseFactor(text)
		if got != want || (err == nil) != (want > 0) {
			t.Errorf("ParseFactor(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
	for n := int64(1); n <= enforcement.MaxFactor; n++ { // every one there is
		text := exceptions.FormatFactor(n)
		if got, err := exceptions.ParseFactor(text); got != n || err != nil {
			t.Fatalf("%d is written %q and read %d, %v", n, text, got, err)
		}
	}
}

func FuzzParseFactor(f *testing.F) {
	for _, text := range []string{"1.5", "0.001", "1000", "01", "1e3", "1.0000", "-0", "999.999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := exceptions.ParseFactor(text)
		if err != nil {
			if n != 0 {
				t.Errorf("%q: %d beside %v", text, n, err)
			}
			return
		}
		short := exceptions.FormatFactor(n)
		again, err := exceptions.ParseFactor(short)
		if n < 1 || n > enforcement.MaxFactor || again != n || err != nil {
			t.Errorf("%q is %d, written %q and read %d, %v", text, n, short, again, err)
		}
		// Beside the zeros at its end, the text is the only one.
		if rest, ok := strings.CutPrefix(text, short); !ok || strings.Trim(rest, ".0") != "" {
			t.Errorf("%q was read as %s", text, short)
		}
	})
}
