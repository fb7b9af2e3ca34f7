//go:build !quick

package main

import (
	encoding "encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest"
	"github.com/headgate/headgate/internal/testseed"
)

// collidingNames are values that can become equal if a program joins, folds, composes, escapes
// or cuts them, or uses them as a pattern. Two tenants use all of them.
var collidingNames = []string{
	"a", "A", "b", "c", "a:b", "b:c", "a:", ":c", "a:b:c", "a|b", "a\tb", "a b", "1:a", "{a}", "{t}", "{", "}", "%61", "%7Ba%7D", "a%", "*", "a*", "?", "[a]",
	"\u00e9", "e\u0301", "\u212b", "\u00c5", "A\u030a", "ß", "ss", "SS", "ı", "i", "I", "t", "t-a", "T-A", "nobody", "l1", "pair",
	strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("x", 1024),
	strings.Repeat("é", 127) + "x", strings.Repeat("é", 128), "a\u200d", "a\ufe0f", "'; --", `"`, `\`, "null", "0", "00",
}

const (
	pairQuota, userQuota = 3, 2
	wallPolicies         = `[
		{"slug": "pair", "match": {"path": "/pair"}, "count_by": ["a", "b"], "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 3, "window": "366d"}]},
		{"slug": "user", "match": {"path": "/user"}, "count_by": ["user"], "on_failure": "closed", "limits": [{"algorithm": "fixed_window", "quota": 2, "window": "366d"}]}]`
)

// A wallTenant is a tenant with its expected state.
type wallTenant struct {
	slug, id, key string
	used          map[[3]string]int // by policy and values
	overrides     map[string]overridden
	denied        map[string]string // value to id
	keys          map[string]string // id to token, that are valid
	made          map[string]int    // audit lines by action
	refused       map[string]bool   // decisions
}

type overridden struct {
	id    string
	quota int
}

// walls tests that two tenants do not affect each other. They have the same plan and the same
// names, and the slug of one is the start of the slug of the other.
type walls struct {
	t       *testing.T
	origins []string
	tenants []*wallTenant
	ledger  ledger
	random  *rand.Rand
}

func newWalls(t *testing.T, origins []string) *walls {
	t.Helper()
	seed := testseed.Seed(t)
	w := &walls{t: t, origins: origins, random: rand.New(rand.NewPCG(seed, 4))}
	for _, slug := range []string{"t", "t-a"} {
		n := &wallTenant{
			slug: slug, used: map[[3]string]int{}, overrides: map[string]overridden{}, denied: map[string]string{}, keys: map[string]string{},
			made: map[string]int{}, refused: map[string]bool{},
		}
		w.tenants = append(w.tenants, n)
		w.post(bootstrap, "/v1/tenants", `{"slug": "`+slug+`", "tenant": {"require_route": false, "name": "T", "plan": "walls"}}`, &n.id)
		var made struct{ Token string }
		call(t, bootstrap, "POST", origins[0]+"/v1/tenants/"+slug+"/keys", `{"name": "k", "scopes": ["check", "manage"]}`).want(t, 201).into(t, &made)
		n.key = made.Token
		n.made["key.create"]++
	}
	w.settle()
	return w
}

// post creates an object through the first node and stores its ID in id.
func (w *walls) post(key, path, body string, id *string) {
	w.t.Helper()
	var made struct{ ID string }
	call(w.t, key, "POST", w.origins[0]+path, body).want(w.t, 201).into(w.t, &made)
	*id = made.ID
}

// settle waits until every node has the changes that were written through the first one.
func (w *walls) settle() {
	w.t.Helper()
	revision := func(origin string) int64 {
		var r struct{ Snapshot struct{ Revision int64 } }
		call(w.t, "", "GET", origin+"/readyz?verbose", "").want(w.t, 200).into(w.t, &r)
		return r.Snapshot.Revision
	}
	if len(w.origins) == 1 {
		return // a node has its own writes
	}
	want := revision(w.origins[0])
	if want == 0 {
		w.t.Fatal("the first node tells no revision")
	}
	for _, origin := range w.origins[1:] {
		eventually(w.t, "a node hears of a write", func() bool { return revision(origin) >= want })
	}
}

func (w *walls) name() string { return collidingNames[w.random.IntN(len(collidingNames))] }

func quoted(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// step does one random operation as one of the tenants.
func (w *walls) step() {
	w.t.Helper()
	at := w.random.IntN(2)
	me, other := w.tenants[at], w.tenants[1-at]
	switch n := w.random.IntN(100); {
	case n < 85:
		w.check(me)
	case n < 88:
		w.deny(me)
	case n < 91:
		w.override(me)
	case n < 93:
		w.reset(me)
	case n < 95:
		w.ownKey(me)
	case n < 97:
		w.look(me, other)
	default:
		w.trespass(me, other)
	}
}

// check sends a check and compares the decision with the model.
func (w *walls) check(n *wallTenant) {
	w.t.Helper()
	cell, quota, attributes := [3]string{"pair", w.name(), w.name()}, pairQuota, map[string]string{}
	attributes["a"], attributes["b"] = cell[1], cell[2]
	denied := false
	if w.random.IntN(2) == 0 {
		cell, quota = [3]string{"user", w.name()}, userQuota
		attributes = map[string]string{"user": cell[1]}
		_, denied = n.denied[cell[1]]
		if o, ok := n.overrides[cell[1]]; ok {
			quota = o.quota
		}
	}
	ask := map[string]any{"path": "/" + cell[0], "attributes": attributes}
	key := n.key
	if names := []string{"", n.slug, n.id}; w.random.IntN(2) == 0 {
		key, ask["tenant"] = bootstrap, names[1+w.random.IntN(2)]
	} else if name := names[w.random.IntN(3)]; name != "" {
		ask["tenant"] = name
	}
	a := call(w.t, key, "POST", w.origins[w.random.IntN(len(w.origins))]+"/v1/check", quoted(ask))
	var d struct {
		Tenant, Reason string
		Decision       string `json:"decision_id"`
		Limits         []struct{ Remaining int }
	}
	a.into(w.t, &d)
	want := struct {
		status, remaining int
		reason            string
	}{http.StatusOK, quota - n.used[cell] - 1, "ok"}
	switch {
	case denied:
		want.status, want.reason = http.StatusForbidden, "denied_by_list"
	case n.used[cell]+1 > quota:
		want.status, want.remaining, want.reason = http.StatusTooManyRequests, max(quota-n.used[cell], 0), "over_limit"
	default:
		n.used[cell]++
	}
	if a.status != want.status || d.Reason != want.reason || d.Tenant != n.slug || !denied && (len(d.Limits) != 1 || d.Limits[0].Remaining != want.remaining) {
		w.t.Fatalf("%s %q: %d %s, want %+v", n.slug, cell, a.status, a.body, want)
	}
	w.ledger.note(n.slug, d.Reason)
	if a.status != http.StatusOK {
		n.refused[d.Decision] = true
	}
}

// deny adds a value to the deny list, or removes it.
func (w *walls) deny(n *wallTenant) {
	w.t.Helper()
	value := w.name()
	if id, ok := n.denied[value]; ok {
		call(w.t, bootstrap, "DELETE", w.origins[0]+"/v1/tenants/"+n.slug+"/lists/"+id, "").want(w.t, 204)
		delete(n.denied, value)
		n.made["list_entry.delete"]++
	} else {
		var id string
		w.post(bootstrap, "/v1/tenants/"+n.slug+"/lists", `{"list": "deny", "attribute": "user", "reason": "r", "value": `+quoted(value)+`}`, &id)
		n.denied[value] = id
		n.made["list_entry.create"]++
	}
	w.settle()
}

// override creates or ends an override for one user.
func (w *walls) override(n *wallTenant) {
	w.t.Helper()
	value := w.name()
	if o, ok := n.overrides[value]; ok {
		call(w.t, bootstrap, "DELETE", w.origins[0]+"/v1/tenants/"+n.slug+"/overrides/"+o.id, "").want(w.t, 204)
		delete(n.overrides, value)
		n.made["override.delete"]++
	} else {
		o := overridden{quota: 1 + w.random.IntN(6)}
		w.post(bootstrap, "/v1/tenants/"+n.slug+"/overrides", fmt.Sprintf(
			`{"policy": "user", "attribute": "user", "reason": "r", "limits": [{"name": "l1", "quota": %d}], "value": %s}`, o.quota, quoted(value)), &o.id)
		n.overrides[value] = o
		n.made["override.create"]++
	}
	w.settle()
}

// reset resets the counter of one key.
func (w *walls) reset(n *wallTenant) {
	w.t.Helper()
	cell := [3]string{"pair", w.name(), w.name()}
	body := map[string]any{"policy": "pair", "reason": "r", "key": map[string]string{"a": cell[1], "b": cell[2]}}
	call(w.t, bootstrap, "POST", w.origins[w.random.IntN(len(w.origins))]+"/v1/tenants/"+n.slug+"/reset", quoted(body)).want(w.t, 204)
	delete(n.used, cell)
	w.settle()
}

// ownKey creates an API key with a key of the tenant, or revokes one.
func (w *walls) ownKey(n *wallTenant) {
	w.t.Helper()
	path := w.origins[0] + "/v1/tenants/" + n.slug + "/keys"
	if ids := slices.Sorted(maps.Keys(n.keys)); len(ids) > 3 {
		id := ids[w.random.IntN(len(ids))]
		call(w.t, n.key, "DELETE", path+"/"+id, "").want(w.t, 200)
		call(w.t, n.keys[id], "GET", w.origins[0]+"/v1/tenants/"+n.slug, "").want(w.t, 401)
		delete(n.keys, id)
		n.made["key.revoke"]++
	} else {
		var made struct {
			Token string
			Key   struct{ ID string }
		}
		call(w.t, n.key, "POST", path, `{"scopes": ["read"], "name": "k"}`).want(w.t, 201).into(w.t, &made)
		n.keys[made.Key.ID] = made.Token
		n.made["key.create"]++
	}
	w.settle()
}

// look reads the state of the tenant with its own key, on any node.
func (w *walls) look(me, other *wallTenant) {
	w.t.Helper()
	origin := w.origins[w.random.IntN(len(w.origins))] + "/v1/tenants/" + me.slug
	overrides := map[string]bool{}
	for _, o := range me.overrides {
		overrides[o.id] = true
	}
	entries := map[string]bool{}
	for _, id := range me.denied {
		entries[id] = true
	}
	for path, want := range map[string]map[string]bool{"/overrides": overrides, "/lists": entries} {
		var page struct {
			Data []struct {
				ID     string
				Tenant string `json:"tenant_id"`
			}
		}
		a := call(w.t, me.key, "GET", origin+path+"?limit=100", "").want(w.t, 200)
		a.into(w.t, &page)
		got := map[string]bool{}
		for _, row := range page.Data {
			got[row.ID] = true
			if row.Tenant != me.id {
				w.t.Fatalf("%s of %s: %s", path, me.slug, a.body)
			}
		}
		if !maps.Equal(got, want) {
			w.t.Fatalf("%s of %s: %v, want %v", path, me.slug, got, want)
		}
	}
	for _, path := range []string{"/keys?limit=100", ""} {
		if a := call(w.t, me.key, "GET", origin+path, "").want(w.t, 200); strings.Contains(a.body, other.id) {
			w.t.Fatalf("%s shows %s: %s", me.slug, other.slug, a.body)
		}
	}
}

// trespass tries to reach the objects of the other tenant. Each answer must be that for an
// object that does not exist.
func (w *walls) trespass(me, other *wallTenant) {
	w.t.Helper()
	origin := w.origins[w.random.IntN(len(w.origins))]
	send := func(method, path, body string) string {
		a := call(w.t, me.key, method, origin+path, body, "X-Request-Id", "same")
		return fmt.Sprint(a.status, " ", a.body)
	}
	name := []string{other.slug, other.id}[w.random.IntN(2)]
	for _, ask := range [][3]string{
		{"POST", "/v1/check", `{"tenant": "%s", "path": "/user", "attributes": {"user": "a"}}`},
		{"GET", "/v1/tenants/%s", ""},
		{"POST", "/v1/tenants/%s/keys", `{"name": "k", "scopes": ["read"]}`},
		{"GET", "/v1/audit?tenant=%s", ""},
		{"GET", "/v1/analytics/traffic?tenant=%s", ""},
	} {
		theirs := send(ask[0], strings.Replace(ask[1], "%s", name, 1), strings.Replace(ask[2], "%s", name, 1))
		none := send(ask[0], strings.Replace(ask[1], "%s", "nobody", 1), strings.Replace(ask[2], "%s", "nobody", 1))
		if theirs != none || !strings.HasPrefix(theirs, "403") {
			w.t.Fatalf("%v by %s: %s, of nobody %s", ask, me.slug, theirs, none)
		}
	}
	const nobodys = "01939c1e-0000-7000-8000-00000000ffff"
	for id := range other.keys {
		if theirs, none := send("DELETE", "/v1/tenants/"+me.slug+"/keys/"+id, ""), send("DELETE", "/v1/tenants/"+me.slug+"/keys/"+nobodys, ""); theirs != none || !strings.HasPrefix(theirs, "404") {
			w.t.Fatalf("key of %s by %s: %s, of nobody %s", other.slug, me.slug, theirs, none)
		}
	}
	for id := range other.refused {
		if theirs, none := send("GET", "/v1/explain/"+id, ""), send("GET", "/v1/explain/"+nobodys, ""); theirs != none || !strings.HasPrefix(theirs, "404") {
			w.t.Fatalf("refusal of %s by %s: %s, of nobody %s", other.slug, me.slug, theirs, none)
		}
		break
	}
}

// audited returns the number of a tenant's audit entries with an action. It reads all pages of
// the log.
func (w *walls) audited(n *wallTenant, action string) (lines int) {
	w.t.Helper()
	path := "/v1/audit?limit=100&action=" + action
	for path != "" {
		var page struct {
			Data []struct {
				Tenant string `json:"tenant_id"`
			}
		}
		a := call(w.t, n.key, "GET", w.origins[0]+path, "").want(w.t, 200)
		a.into(w.t, &page)
		for _, row := range page.Data {
			if row.Tenant != n.id {
				w.t.Fatalf("%s reads a line of %s", n.slug, row.Tenant)
			}
		}
		lines += len(page.Data)
		path = strings.TrimSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	}
	return lines
}

// agree compares the counts and the audit log with the model.
func (w *walls) agree(began time.Time) {
	w.t.Helper()
	for _, origin := range w.origins {
		w.ledger.settled(w.t, origin, began)
	}
	for at, n := range w.tenants {
		w.look(n, w.tenants[1-at])
		for action, want := range n.made {
			if got := w.audited(n, action); got != want {
				w.t.Errorf("%s has %d lines of %s, want %d", n.slug, got, action, want)
			}
		}
		var page struct {
			Data []struct {
				Tenant string
				ID     string `json:"decision_id"`
			}
		}
		a := call(w.t, n.key, "GET", w.origins[0]+"/v1/analytics/refusals?limit=100", "").want(w.t, 200)
		a.into(w.t, &page)
		for _, r := range page.Data {
			if r.Tenant != n.slug || !n.refused[r.ID] {
				w.t.Errorf("%s reads the refusal %+v", n.slug, r)
			}
		}
		if len(page.Data) == 0 && len(n.refused) > 0 {
			w.t.Errorf("%s has no refusals: %s", n.slug, a.body)
		}
	}
}

// operations returns the number of random operations of a test.
func operations(t *testing.T, usual int) int {
	t.Helper()
	if text := os.Getenv("HEADGATE_TEST_OPERATIONS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("HEADGATE_TEST_OPERATIONS: %v", err)
		}
		return n
	}
	return usual
}

const wallsPlan = `{"slug": "walls", "draft": {"name": "Walls", "policies": ` + wallPolicies + `}}`

// Two tenants have names that can be confused. On an embedded node with SQLite, no tenant can
// see, count or change anything of the other.
func TestWallsBetweenTenants(t *testing.T) {
	t.Parallel()
	began := time.Now()
	node := start(t, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(t.TempDir()), "HEADGATE_BOOTSTRAP_KEY": bootstrap, "HEADGATE_SAMPLE": "false"})
	made := call(t, bootstrap, "POST", node.origin+"/v1/plans", wallsPlan).want(t, 201)
	call(t, bootstrap, "POST", node.origin+"/v1/plans/walls/publish", "", "If-Match", made.header.Get("ETag")).want(t, 200)
	w := newWalls(t, []string{node.origin})
	for range operations(t, 10_000) {
		w.step()
	}
	w.agree(began)
}

// The same with two nodes on Postgres and Redis. The test also checks the keys in Redis.
func TestWallsBetweenTenantsInAFleet(t *testing.T) {
	t.Parallel()
	began := time.Now()
	url, prefix := servertest.Redis(t), fmt.Sprintf("walls-%x:", rand.Uint64())
	f := startCluster(t, 2, map[string]string{"HEADGATE_REDIS_URL": url, "HEADGATE_REDIS_PREFIX": prefix})
	f.publish("walls", wallPolicies)
	w := newWalls(t, []string{f.nodes[0].origin, f.nodes[1].origin})
	for range operations(t, 10_000) / 5 {
		w.step()
	}
	w.agree(began)
	w.lookIntoRedis(url, prefix)
}

// ownKey matches the names of the keys in Redis that belong to no tenant: the format of the
// counters, the revoked keys, the markers of nodes and of the durable limits, and the node that ends
// reservations.
var ownKey = regexp.MustCompile(`^(format|revoked|\{..\}(m([0-9a-f]{32})?|S|d|dl|df?[0-9a-f-]{36}))$`)

// lookIntoRedis compares the names of the counters in Redis with the model. Each charged
// counter has one key. Its name contains the number of the tenant, and no value of an
// attribute.
func (w *walls) lookIntoRedis(url, prefix string) {
	w.t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		w.t.Fatal(err)
	}
	r := redis.NewClient(options)
	defer r.Close()
	counters := map[uint64]int{}
	all := r.Scan(w.t.Context(), 0, prefix+"*", 1000).Iterator()
	for all.Next(w.t.Context()) {
		name := []byte(strings.TrimPrefix(all.Val(), prefix))
		if ownKey.Match(name) {
			continue
		}
		_, rest, ok := strings.Cut(string(name), "}")
		tenant, size := encoding.Uvarint([]byte(rest))
		_, cell := encoding.Uvarint([]byte(rest)[max(size, 0):])
		if !ok || name[0] != '{' || size <= 0 || cell <= 0 || len(rest) != size+cell+16 {
			w.t.Fatalf("a counter has the name %q", all.Val())
		}
		counters[tenant]++
	}
	if err := all.Err(); err != nil {
		w.t.Fatal(err)
	}
	var got, want []int
	for _, n := range counters {
		got = append(got, n)
	}
	for _, n := range w.tenants {
		want = append(want, len(n.used))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("Redis has counters %v, the model %v", counters, want)
	}
}
