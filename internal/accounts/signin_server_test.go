//go:build !quick

package accounts_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/enforcement/redis"
	"github.com/headgate/headgate/internal/accounts"
	"github.com/headgate/headgate/internal/servertest"
)

// Two nodes, each with a connection of its own to one Redis, count together:
// five attempts on an account reach a hash, whichever node they come to.
func TestFailuresAreCountedTogetherInRedis(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.owner()
	prefix := "t" + rand.Text() + ":"
	var nodes []*accounts.People
	hashes := func() int64 { return 0 }
	for range 2 {
		l, err := redis.New(t.Context(), redis.Config{URL: servertest.Redis(t), Prefix: prefix, Timeout: 30 * time.Second})
		h.must(err)
		t.Cleanup(func() { _ = l.Close() })
		node, n := h.node(l, nil)
		nodes = append(nodes, node)
		before := hashes
		hashes = func() int64 { return before() + n.Load() }
	}
	for i := range 12 { // successes are no failures
		_, _, _, err := nodes[i%2].SignIn(t.Context(), "olga@example.com", goodPassword, "192.0.2.1", "")
		h.must(err)
	}
	looked := hashes()
	failed, limited, wait := h.limited(nodes, 14, always("olga@example.com"), func(i int) string { return fmt.Sprintf("198.51.100.%d", i) })
	if failed != 5 || limited != 9 || hashes()-looked != 5 || wait <= 0 || wait > accounts.FailureWindow {
		t.Errorf("%d failed, %d limited, %d hashes, to wait %v; want 5, 9 and 5", failed, limited, hashes()-looked, wait)
	}
	_, _, _, err := nodes[1].SignIn(t.Context(), "olga@example.com", goodPassword, "203.0.113.9", "")
	if limit := (*accounts.LimitedError)(nil); !errors.As(err, &limit) {
		t.Errorf("%v, want a limit", err)
	}
	// Other people from elsewhere are not held up by that.
	if failed, _, _ := h.limited(nodes, 5, always("else@example.com"), always("203.0.113.10")); failed != 5 {
		t.Errorf("%d attempts on another account were looked at, want 5", failed)
	}
}
