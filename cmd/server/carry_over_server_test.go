//go:build !quick

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// Three nodes serve checks while a version with a larger quota is published. No unit is admitted
// twice: each policy admits what its carry_over leaves, whenever each node learned of the version.
func TestPublishUnderLoad(t *testing.T) {
	t.Parallel()
	const from, to, first = 1500, 2400, 300
	policies := func(quota int, carry bool) string {
		var list []string
		for _, name := range []string{"keep", "reset", "proportional", "additive"} {
			limit := fmt.Sprintf(`{"algorithm": "fixed_window", "quota": %d, "window": "1d"`, quota)
			if carry {
				limit += fmt.Sprintf(`, "carry_over": %q`, name)
			}
			list = append(list, fmt.Sprintf(`{"slug": %q, "match": {"path": "/%[1]s"}, "limits": [%s}]}`, name, limit))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	f := startCluster(t, 3, nil)
	f.publish("plan", policies(from, false))
	f.tenant("acme", "plan")
	draft := call(t, bootstrap, "GET", f.nodes[0].origin+"/v1/plans/plan/draft", "").want(t, 200)

	type counts struct{ before, all atomic.Int64 }
	admitted := map[string]*counts{"keep": {}, "reset": {}, "proportional": {}, "additive": {}}
	underLoad := make(chan struct{}, len(admitted)*len(f.nodes))
	var workers sync.WaitGroup
	for name, c := range admitted {
		for _, node := range f.nodes {
			workers.Go(func() {
				loaded := sync.OnceFunc(func() { underLoad <- struct{}{} })
				defer loaded()
				for {
					a, err := tryCall(t.Context(), bootstrap, "POST", node.origin+"/v1/check",
						fmt.Sprintf(`{"tenant": "acme", "method": "GET", "path": "/%s"}`, name))
					var d struct {
						Allowed bool `json:"allowed"`
						Version int  `json:"plan_version"`
					}
					if err == nil {
						err = json.Unmarshal([]byte(a.body), &d)
					}
					if err != nil {
						t.Error(err)
						return
					}
					switch {
					case d.Allowed && d.Version == 1:
						c.before.Add(1)
						c.all.Add(1)
					case d.Allowed:
						c.all.Add(1)
					case a.status != http.StatusTooManyRequests || d.Version == 2:
						if a.status != http.StatusTooManyRequests {
							t.Errorf("%s: %d %s", name, a.status, a.body)
						}
						return
					}
					if c.all.Load() >= first {
						loaded()
					}
				}
			})
		}
	}
	for range cap(underLoad) {
		<-underLoad
	}
	saved := call(t, bootstrap, "PUT", f.nodes[0].origin+"/v1/plans/plan/draft", fmt.Sprintf(`{"name": "plan", "policies": %s}`, policies(to, true)),
		"If-Match", draft.header.Get("ETag")).want(t, 200)
	call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/plans/plan/publish", "", "If-Match", saved.header.Get("ETag")).want(t, 200)
	workers.Wait()

	for name, c := range admitted {
		before, all := c.before.Load(), c.all.Load()
		least, most := int64(to), int64(to)
		switch name {
		case "reset":
			least, most = to+first, before+to
		case "proportional":
			// used units become used * to / from, rounded up, for a number of used units from first to before
			least, most = to-(before*to+from-1)/from+before, to-(first*to+from-1)/from+first
		}
		if all < least || all > most {
			t.Errorf("%s: %d units admitted, %d of them by the first version; want %d to %d", name, all, before, least, most)
		}
		t.Logf("%s: %d admitted, %d by the first version", name, all, before)
	}
}
