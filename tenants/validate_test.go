package tenants

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/problem"
)

// pointers gives the places at fault in err.
func pointers(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var p *problem.Problem
	if !errors.As(err, &p) || p.Kind != problem.Invalid {
		t.Fatalf("%v: not an Invalid problem", err)
	}
	var out []string
	for _, f := range p.Fields {
		out = append(out, f.Pointer)
	}
	return out
}

func TestNormaliseFillsDefaults(t *testing.T) {
	t.Parallel()
	want := Document{Name: "Acme", Status: Active, TimeZone: "UTC", BillingAnchorDay: 1, NoPolicy: Allow}
	got := Normalise(Document{Name: "Acme"})
	if got != want {
		t.Errorf("Normalise = %+v, want %+v", got, want)
	}
	if again := Normalise(got); again != got {
		t.Errorf("Normalise is not stable: %+v", again)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*Document)
		at   []string
	}{
		{"as it is", func(*Document) {}, nil},
		{"name missing", func(d *Document) { d.Name = "" }, []string{"/name"}},
		{"name blank", func(d *Document) { d.Name = "  " }, []string{"/name"}},
		{"name of 200", func(d *Document) { d.Name = strings.Repeat("é", 200) }, nil},
		{"name of 201", func(d *Document) { d.Name = strings.Repeat("é", 201) }, []string{"/name"}},
		{"name with a line break", func(d *Document) { d.Name = "a\nb" }, []string{"/name"}},
		{"name not UTF-8", func(d *Document) { d.Name = "a\xff" }, []string{"/name"}},
		{"suspended", func(d *Document) { d.Status = Suspended }, nil},
		{"status unknown", func(d *Document) { d.Status = "Active" }, []string{"/status"}},
		{"plan", func(d *Document) { d.Plan = "pro" }, nil},
		{"plan no slug", func(d *Document) { d.Plan = "Pro" }, []string{"/plan"}},
		{"zone", func(d *Document) { d.TimeZone = "Europe/Berlin" }, nil},
		{"zone unknown", func(d *Document) { d.TimeZone = "Mars/Olympus" }, []string{"/time_zone"}},
		{"zone of the machine", func(d *Document) { d.TimeZone = "Local" }, []string{"/time_zone"}},
		{"zone of the host", func(d *Document) { d.TimeZone = "localtime" }, []string{"/time_zone"}},
		{"zone of the host with leap seconds", func(d *Document) { d.TimeZone = "right/Europe/Berlin" }, []string{"/time_zone"}},
		{"zone a path", func(d *Document) { d.TimeZone = "../etc/passwd" }, []string{"/time_zone"}},
		{"day 31", func(d *Document) { d.BillingAnchorDay = 31 }, nil},
		{"day 32", func(d *Document) { d.BillingAnchorDay = 32 }, []string{"/billing_anchor_day"}},
		{"day -1", func(d *Document) { d.BillingAnchorDay = -1 }, []string{"/billing_anchor_day"}},
		{"deny", func(d *Document) { d.NoPolicy = Deny }, nil},
		{"bound of 1,000 keys", func(d *Document) { d.MaxKeys = 1000 }, nil},
		{"bound of a billion keys", func(d *Document) { d.MaxKeys = 1_000_000_000 }, nil},
		{"bound of 999 keys", func(d *Document) { d.MaxKeys = 999 }, []string{"/max_keys"}},
		{"bound above a billion keys", func(d *Document) { d.MaxKeys = 1_000_000_001 }, []string{"/max_keys"}},
		{"negative bound", func(d *Document) { d.MaxKeys = -1 }, []string{"/max_keys"}},
		{"no_policy unknown", func(d *Document) { d.NoPolicy = "refuse" }, []string{"/no_policy"}},
		{
			"all at once", func(d *Document) {
				*d = Document{Status: "x", Plan: "X", TimeZone: "x", BillingAnchorDay: 99, NoPolicy: "x"}
			},
			[]string{"/name", "/status", "/plan", "/time_zone", "/billing_anchor_day", "/no_policy"},
		},
	} {
		d := Normalise(Document{Name: "Acme"})
		c.edit(&d)
		if got := pointers(t, Validate(d)); !slices.Equal(got, c.at) {
			t.Errorf("%s: faults at %q, want %q", c.name, got, c.at)
		}
	}
}

func TestValidateNewKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		key  NewKey
		at   []string
	}{
		{"one scope", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck}}, nil},
		{"all scopes", NewKey{Name: "ci", Scopes: []Scope{ScopeManage, ScopeRead, ScopeCheck}}, nil},
		{"no scope", NewKey{Name: "ci"}, []string{"/scopes"}},
		{"unknown scope", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck, "admin"}}, []string{"/scopes/1"}},
		{"scope twice", NewKey{Name: "ci", Scopes: []Scope{ScopeRead, ScopeRead}}, []string{"/scopes/1"}},
		{"too many", NewKey{Name: "ci", Scopes: []Scope{"a", "b", "c", "d", "e"}}, []string{"/scopes"}},
		{"no name", NewKey{Scopes: []Scope{ScopeCheck}}, []string{"/name"}},
		{"expires", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck}, ExpiresAt: now.Add(time.Second)}, nil},
		{"expires now", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck}, ExpiresAt: now}, []string{"/expires_at"}},
		{"expired", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck}, ExpiresAt: now.Add(-time.Second)}, []string{"/expires_at"}},
		{"expires too late", NewKey{Name: "ci", Scopes: []Scope{ScopeCheck}, ExpiresAt: now.AddDate(9000, 0, 0)}, []string{"/expires_at"}},
		{"all at once", NewKey{Name: "\a", Scopes: []Scope{"x"}, ExpiresAt: now}, []string{"/name", "/scopes/0", "/expires_at"}},
	} {
		if got := pointers(t, c.key.Validate(now)); !slices.Equal(got, c.at) {
			t.Errorf("%s: faults at %q, want %q", c.name, got, c.at)
		}
	}
}

func TestOverlapAndRenewal(t *testing.T) {
	t.Parallel()
	for overlap, want := range map[time.Duration]bool{0: true, MaxOverlap: true, MaxOverlap + 1: false, -1: false} {
		if got := validateOverlap(overlap) == nil; got != want {
			t.Errorf("overlap %v: fine is %v, want %v", overlap, got, want)
		}
	}
	made := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	now := made.AddDate(0, 0, 80)
	if got, want := (Key{CreatedAt: made, ExpiresAt: made.AddDate(0, 0, 90)}).Renewed(now), now.AddDate(0, 0, 90); !got.Equal(want) {
		t.Errorf("a key of 90 days is renewed to %v, want %v", got, want)
	}
	if got := (Key{CreatedAt: made}).Renewed(now); !got.IsZero() {
		t.Errorf("a key without an end is renewed to %v", got)
	}
}

func TestRotatable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later, earlier := now.Add(time.Hour), now.Add(-time.Hour)
	for _, c := range []struct {
		name             string
		expires, revoked time.Time
		code             string
	}{
		{"valid", time.Time{}, time.Time{}, ""},
		{"valid until later", later, time.Time{}, ""},
		{"expired", earlier, time.Time{}, "key_ended"},
		{"expires now", now, time.Time{}, "key_ended"},
		{"revoked", time.Time{}, earlier, "key_ended"},
		{"revoked now", time.Time{}, now, "key_ended"},
		{"rotated", time.Time{}, later, "key_rotated"},
	} {
		err := Rotatable(c.expires, c.revoked, now)
		var p *problem.Problem
		if c.code == "" && err != nil || c.code != "" && (!errors.As(err, &p) || p.Code != c.code || p.Kind != problem.Conflict) {
			t.Errorf("%s: %v, want code %q", c.name, err, c.code)
		}
	}
}

// A store and JSON keep instants in UTC, where the year has four digits.
func TestKeysEndBeforeTheYear10000(t *testing.T) {
	t.Parallel()
	k := NewKey{Name: "n", Scopes: []Scope{ScopeCheck}, ExpiresAt: time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600))}
	if err := k.Validate(time.Now()); !problem.Is(err, problem.Invalid) {
		t.Error("a year of five digits:", err)
	}
	k.ExpiresAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	if err := k.Validate(time.Now()); err != nil {
		t.Error(err)
	}
}
