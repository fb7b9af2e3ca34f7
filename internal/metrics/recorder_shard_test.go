package metrics

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// Many tenants in one second take no more memory than a shard has: what finds no
// room is in the sums, and no sum is wrong.
func TestAFullShardCountsTogether(t *testing.T) {
	t.Parallel()
	const tenants, users = 40, 20
	plan := compile(t, spec("all", "", "", nil, 1<<30), spec("user", "/u/*", "", []string{"user"}, 1<<30))
	r := NewRecorder(Config{})
	for _, s := range r.shards {
		s.content.max, s.spare.max = 20_000/len(r.shards), 20_000/len(r.shards)
	}
	e := engineOf(fixedLimiter(), nil, r)
	for range 3 { // memory is used again
		for user := range users {
			for tenant := range uint32(tenants) {
				decide(e, &enforcement.Subject{Number: tenant + 1, Plan: plan}, enforcement.Enforce, "/u/1", 1, "user", fmt.Sprint("u", user))
			}
		}
		for _, s := range r.shards {
			if s.content.size > s.content.max+2*keySize*topCapacity {
				t.Errorf("%d bytes of %d", s.content.size, s.content.max)
			}
		}
		got := r.drain()
		got.together()
		if all := got.of(0, KindTotal, ""); all.Requests != tenants*users || all.OK != tenants*users || all.Cost != tenants*users {
			t.Errorf("%+v of %d decisions", all, tenants*users)
		}
		if got.folded == 0 {
			t.Error("all had room")
		}
		for key, s := range got.sketches {
			if top, ok := s.(*topKeys); ok && key.Tenant != 0 && key.Name == SketchAllowedKeys {
				for _, k := range top.ranking() {
					if k.count-k.error > users || k.count > top.total {
						t.Errorf("%v: %d ± %d", k.text, k.count, k.error)
					}
				}
			}
		}
	}
	if n := r.folded.Load(); n == 0 {
		t.Error("nothing is told as folded")
	}
}

// A shard frees pages that are no longer in use.
func TestAnIdleShardGivesItsMemoryUp(t *testing.T) {
	t.Parallel()
	plan := compile(t, spec("all", "", "", nil, 1<<30))
	r := NewRecorder(Config{})
	e := engineOf(fixedLimiter(), nil, r)
	for tenant := range uint32(100) {
		decide(e, &enforcement.Subject{Number: tenant + 1, Plan: plan}, enforcement.Enforce, "/", 1)
	}
	for range 4 {
		r.drain()
	}
	for _, s := range r.shards {
		if len(s.content.minutes)+len(s.spare.minutes) != 0 || s.content.size+s.spare.size != 0 {
			t.Errorf("%d minutes of %d bytes", len(s.content.minutes), s.content.size)
		}
	}
}
