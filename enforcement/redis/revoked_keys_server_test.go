//go:build !quick

package redis_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/servertest"
)

// Nodes share the ends of revoked keys. The list keeps the earliest end of a key, forgets old ones,
// and says from which time on it is complete.
func TestRevokedKeys(t *testing.T) {
	t.Parallel()
	server := servertest.StartRedis(t)
	raw := client(t, server.URL())
	config := redis.Config{URL: server.URL(), Prefix: newPrefix()}
	one, other := open(t, config), open(t, config)
	read := func() redis.Revoked {
		t.Helper()
		found, err := other.Revoked(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := read(); !found.Since.IsZero() || len(found.Ends) != 0 {
		t.Errorf("without a list: %+v", found)
	}
	now := time.Now().Truncate(time.Microsecond)
	if err := one.AddRevoked(t.Context(), map[string]time.Time{"a": now}, false); err == nil {
		t.Error("some ends make a list that says that it is complete")
	}
	must := func(ends map[string]time.Time, all bool) {
		t.Helper()
		if err := one.AddRevoked(t.Context(), ends, all); err != nil {
			t.Fatal(err)
		}
	}
	must(map[string]time.Time{"a": now, "b": now.Add(time.Hour), "old": now.Add(-redis.RevokedKept - time.Hour)}, true)
	must(map[string]time.Time{"b": now.Add(time.Minute), "c": now.Add(-time.Hour)}, false)
	must(map[string]time.Time{"a": now.Add(time.Minute)}, false)
	found := read()
	if want := map[string]time.Time{"a": now, "b": now.Add(time.Minute), "c": now.Add(-time.Hour)}; !maps.EqualFunc(found.Ends, want, time.Time.Equal) {
		t.Errorf("the list has %v, want %v", found.Ends, want)
	}
	if age := time.Since(found.Since); age < redis.RevokedKept || age > redis.RevokedKept+time.Hour {
		t.Errorf("complete since %s", found.Since)
	}
	if life := raw.PTTL(t.Context(), config.Prefix+"revoked").Val(); life <= redis.RevokedKept {
		t.Errorf("the list lives %s", life)
	}

	// The list is bounded: the latest ends stay, and it says which are missing.
	const most = 4096
	for _, all := range []bool{false, true} {
		many := map[string]time.Time{}
		for i := range most {
			many[fmt.Sprintf("k%d", i)] = now.Add(time.Duration(i+1) * time.Microsecond)
		}
		if all {
			many["one more"] = now
		}
		must(many, all)
		found = read()
		_, dropped := found.Ends["k0"] // b ends later
		_, kept := found.Ends["k1"]
		if len(found.Ends) != most || dropped || !kept || !found.Since.Equal(many["k0"]) {
			t.Errorf("all %t: %d entries, complete since %s, want %s", all, len(found.Ends), found.Since, many["k0"])
		}
	}

	raw.Set(t.Context(), config.Prefix+"revoked", "garbage x", 0)
	if _, err := other.Revoked(t.Context()); err == nil {
		t.Error("garbage is read")
	}
	must(map[string]time.Time{"a": now}, true)
	if found := read(); len(found.Ends) != 1 {
		t.Errorf("after garbage: %v", found.Ends)
	}
}
