//go:build !quick

package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// An operator sees a denial, finds its reason on another node, and changes exceptions: an
// override, its end, a list entry, a block and a reset. Each change reaches every node.
func TestExceptionsALiveFleet(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, nil)
	origin := f.nodes[0].origin
	f.publish("plan", `[{"slug": "per-user", "match": {"path": "/v1/items"}, "count_by": ["user"], "limits": [{"algorithm": "fixed_window", "quota": 2, "window": "1d"}]}]`)
	f.tenant("acme", "plan")
	f.tenant("globex", "plan")
	check := func(node int, user string) answer {
		return call(t, bootstrap, "POST", f.nodes[node].origin+"/v1/check", fmt.Sprintf(`{"tenant": "acme", "path": "/v1/items", "attributes": {"user": %q}}`, user))
	}
	create := func(what, body string) string {
		var made struct{ ID string }
		call(t, bootstrap, "POST", origin+"/v1/tenants/acme/"+what, body).want(t, 201).into(t, &made)
		return made.ID
	}
	peek := func(user string) string {
		return fmt.Sprintf(`{"tenant": "acme", "path": "/v1/items", "attributes": {"user": %q}, "mode": "peek"}`, user)
	}
	reason := func(want string) func(answer) bool {
		return func(a answer) bool { return strings.Contains(a.body, `"reason":"`+want+`"`) }
	}

	check(0, "u1").want(t, 200)
	check(1, "u1").want(t, 200)
	var refused struct {
		ID string `json:"decision_id"`
	}
	check(2, "u1").want(t, 429).into(t, &refused)

	// Every node returns the denial with its explanation. With the key of another tenant, the
	// response is the same as for an ID that does not exist.
	for i, node := range f.nodes {
		var kept struct {
			Policy, Limit, Reason, Route string
			Attributes                   map[string]string
			Policies                     []struct{ Policy, Why string }
		}
		eventually(t, fmt.Sprintf("node %d knows the refusal", i), func() bool {
			a := call(t, bootstrap, "GET", node.origin+"/v1/explain/"+refused.ID, "")
			if a.status == 200 {
				a.into(t, &kept)
			}
			return a.status == 200
		})
		if kept.Policy != "per-user" || kept.Limit != "l1" || kept.Reason != "over_limit" || kept.Route != "/v1/items" || kept.Attributes["user"] != "u1" || len(kept.Policies) != 1 || kept.Policies[0].Why != "applies" {
			t.Errorf("node %d explains %+v", i, kept)
		}
	}
	f.foreignKey("globex", refused.ID)

	// If several overrides with a factor match a user, the newest one applies.
	create("overrides", `{"policy": "per-user", "attribute": "user", "prefix": "u", "factor": 0.5, "reason": "incident 7"}`)
	id := create("overrides", `{"policy": "per-user", "attribute": "user", "value": "u1", "factor": 1.5, "reason": "support case 9"}`)
	f.everywhere(peek("u1"), func(a answer) bool { return a.status == 200 && strings.Contains(a.body, `"quota":3`) })
	f.everywhere(peek("u2"), func(a answer) bool { return a.status == 200 && strings.Contains(a.body, `"quota":1`) })
	check(1, "u1").want(t, 200) // the units that were used before are still used: one more is allowed
	check(2, "u1").want(t, 429)
	call(t, bootstrap, "DELETE", origin+"/v1/tenants/acme/overrides/"+id, "").want(t, 204)
	f.everywhere(peek("u1"), func(a answer) bool { return a.status == 429 && strings.Contains(a.body, `"quota":1`) })

	// A reset clears the counter of one key, and no other.
	check(0, "u2").want(t, 200)
	call(t, bootstrap, "POST", f.nodes[1].origin+"/v1/tenants/acme/reset", `{"policy": "per-user", "key": {"user": "u1"}, "reason": "goodwill"}`).want(t, 204)
	check(2, "u1").want(t, 200)
	check(2, "u2").want(t, 429)

	// A block ends on every node when its time is over. The deny list has precedence over the
	// allow list.
	until := time.Now().Add(3 * time.Second)
	create("blocks", fmt.Sprintf(`{"policy": "per-user", "key": {"user": "u3"}, "reason": "scraper", "expires_at": %q}`, until.UTC().Format(time.RFC3339Nano)))
	f.everywhere(peek("u3"), func(a answer) bool {
		return reason("blocked")(a) && a.status == 429 && a.header.Get("Retry-After") != "" || time.Now().After(until)
	})
	f.everywhere(peek("u3"), reason("ok"))
	create("lists", `{"list": "allow", "attribute": "user", "value": "u1", "reason": "partner"}`)
	f.everywhere(peek("u1"), reason("allowed_by_list"))
	create("lists", `{"list": "deny", "attribute": "ip", "value": "2001:db8::/32", "reason": "abuse"}`)
	f.everywhere(`{"tenant": "acme", "path": "/v1/items", "attributes": {"user": "u1", "ip": "2001:db8:1::9"}, "mode": "peek"}`,
		func(a answer) bool { return a.status == http.StatusForbidden && reason("denied_by_list")(a) })

	// Expired exceptions were deleted, and every change has an entry in the audit log.
	eventually(t, "the block is gone from the list", func() bool {
		var page struct{ Data []any }
		call(t, bootstrap, "GET", origin+"/v1/tenants/acme/blocks", "").want(t, 200).into(t, &page)
		return len(page.Data) == 0
	})
	for _, action := range []string{"override.create", "override.delete", "block.create", "block.expire", "list_entry.create", "counter.reset"} {
		var page struct{ Data []struct{ Object string } }
		call(t, bootstrap, "GET", origin+"/v1/audit?"+url.Values{"tenant": {"acme"}, "action": {action}}.Encode(), "").want(t, 200).into(t, &page)
		if len(page.Data) == 0 {
			t.Errorf("no audit line of %s", action)
		}
	}
}

// foreignKey requests a denial with the key of another tenant.
func (f *cluster) foreignKey(tenant, decision string) {
	t := f.t
	t.Helper()
	var key struct{ Token string }
	call(t, bootstrap, "POST", f.nodes[0].origin+"/v1/tenants/"+tenant+"/keys", `{"name": "k", "scopes": ["read"]}`).want(t, 201).into(t, &key)
	foreign := call(t, key.Token, "GET", f.nodes[0].origin+"/v1/explain/"+decision, "").want(t, 404)
	unknown := call(t, key.Token, "GET", f.nodes[0].origin+"/v1/explain/01a1fc9c-1fc1-7a53-9e48-bc41d6cade26", "").want(t, 404)
	strip := func(a answer) string { return strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), "") }
	if strip(foreign) != strip(unknown) {
		t.Errorf("another tenant's refusal and none answer differently:\n%s\n%s", foreign.body, unknown.body)
	}
}
