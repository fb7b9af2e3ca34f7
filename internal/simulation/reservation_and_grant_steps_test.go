package simulation

import (
	"strings"
	"testing"
)

// playedSteps plays a scenario on a limit and returns, for each step, what it says of the reservation and
// of repetitions, and the units left of each limit.
func playedSteps(t *testing.T, members string) []string {
	t.Helper()
	out, err := RunOne(t.Context(), []byte(`{"id":"a",`+members+`}`), Config{NewLimiter: inProcess})
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, list, _ := strings.Cut(string(out), `"steps": [`)
	var steps []string
	for text := range strings.SplitSeq(list, `{"at_ms": `) {
		if text == "" {
			continue
		}
		words := []string{"no"}
		if strings.Contains(text, `"allowed": true, "allowed_count"`) {
			words[0] = "ok"
		}
		for _, name := range []string{"granted", "replayed", "reservation", "problem", "remaining", "near_limit", "charged"} {
			for _, part := range strings.Split(text, `"`+name+`": `)[1:] {
				value := part[:strings.IndexAny(part, ",}")]
				words = append(words, name+"="+strings.Trim(value, `"`))
			}
		}
		steps = append(steps, strings.Join(words, " "))
	}
	return steps
}

func sameSteps(t *testing.T, got []string, want ...string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w && !(strings.HasSuffix(w, "…") && strings.HasPrefix(g, strings.TrimSuffix(w, "…"))) {
			t.Errorf("step %d: %q, want %q", i, g, w)
		}
	}
}

const tenAnHour = `"limits":[{"name":"q","algorithm":"fixed_window","quota":10,"window":"1h","warn_at":[50,80],"durable":true}],`

func TestReservations(t *testing.T) {
	t.Parallel()
	sameSteps(t, playedSteps(t, tenAnHour+`"steps":[
		{"at_ms":0,"op":"reserve","reservation":"a","cost":6,"ttl_ms":60000},
		{"at_ms":0,"op":"reserve","reservation":"a","cost":6,"ttl_ms":60000},
		{"at_ms":0,"op":"reserve","reservation":"a","cost":7,"ttl_ms":60000},
		{"at_ms":0,"op":"reserve","reservation":"b","cost":6,"ttl_ms":60000},
		{"at_ms":1000,"op":"settle","reservation":"a","cost":2},
		{"at_ms":1000,"op":"settle","reservation":"a","cost":2},
		{"at_ms":1000,"op":"settle","reservation":"a","cost":3},
		{"at_ms":1000,"op":"give_back","reservation":"c"},
		{"at_ms":2000,"op":"reserve","reservation":"d","cost":3,"ttl_ms":60000},
		{"at_ms":50000,"op":"extend","reservation":"d","ttl_ms":60000},
		{"at_ms":100000,"op":"give_back","reservation":"d"},
		{"at_ms":100000,"op":"reserve","reservation":"e","cost":3,"ttl_ms":60000},
		{"at_ms":160000,"op":"settle","reservation":"e","cost":1}]`),
		"ok granted=6 reservation=active remaining=4 near_limit=50",
		"ok granted=0 replayed=true reservation=active remaining=4 near_limit=50",
		"no granted=0 problem=the idempotency key…",
		"no granted=0 remaining=4 near_limit=50",
		"ok granted=0 reservation=settled remaining=8 charged=2",
		"ok granted=0 replayed=true reservation=settled remaining=8 charged=2",
		"no granted=0 problem=reservation a was settled at…",
		"no granted=0 problem=no such reservation: it does not exist…",
		"ok granted=3 reservation=active remaining=5 near_limit=50",
		"ok granted=0 reservation=active remaining=5 near_limit=50",
		"ok granted=0 reservation=released remaining=8 charged=0",
		"ok granted=3 reservation=active remaining=5 near_limit=50",
		"no granted=0 problem=reservation e ended by itself at…",
	)
	// The window ends before the settle, so the estimate stays charged.
	sameSteps(t, playedSteps(t, tenAnHour+`"steps":[
		{"at_ms":0,"op":"reserve","reservation":"a","cost":6,"ttl_ms":7200000},
		{"at_ms":3600000,"op":"settle","reservation":"a","cost":2}]`),
		"ok granted=6 reservation=active remaining=4 near_limit=50",
		"ok granted=0 reservation=settled remaining=10 charged=6",
	)
	// A reservation that expires keeps its cost, or returns it.
	for expiry, left := range map[string]string{"": "4", `"reservation_expiry":"keep",`: "4", `"reservation_expiry":"refund",`: "10"} {
		got := playedSteps(t, expiry+tenAnHour+`"steps":[
			{"at_ms":0,"op":"reserve","reservation":"a","cost":6,"ttl_ms":60000},{"at_ms":59999,"op":"peek","cost":0},{"at_ms":60000,"op":"peek","cost":0}]`)
		if !strings.Contains(got[1], "remaining=4") || !strings.Contains(got[2]+" ", "remaining="+left+" ") {
			t.Errorf("%s: %q", expiry, got)
		}
	}
}

func TestIdempotencyKeysAndGrants(t *testing.T) {
	t.Parallel()
	sameSteps(t, playedSteps(t, tenAnHour+`"steps":[
		{"at_ms":0,"cost":4,"repeat":3,"idempotency_key":"k"},
		{"at_ms":0,"cost":5,"idempotency_key":"k"},
		{"at_ms":0,"cost":4,"key":"u2","idempotency_key":"k2"},
		{"at_ms":600001,"cost":4,"idempotency_key":"k"},
		{"at_ms":600001,"cost":3},
		{"at_ms":600001,"op":"grant","units":5,"ttl_ms":60000},
		{"at_ms":600001,"cost":3},
		{"at_ms":660001,"cost":3},
		{"at_ms":660001,"op":"grant","units":2,"ttl_ms":60000,"key":"u2"},
		{"at_ms":660001,"op":"peek","cost":0,"key":"u2"},
		{"at_ms":660001,"op":"peek","cost":0},
		{"at_ms":660001,"op":"grant","units":2,"ttl_ms":60000,"limit":"none"}]`),
		"ok granted=4 replayed=true remaining=6",
		"no granted=0 problem=the idempotency key…",
		"ok granted=4 remaining=6",
		"ok granted=4 remaining=2 near_limit=80",
		"no granted=0 remaining=2 near_limit=80",
		"ok granted=0",
		"ok granted=3 remaining=4…",
		"no granted=0 remaining=0…",
		"ok granted=0",
		"ok granted=0 remaining=8",
		"ok granted=0 remaining=0…",
		"no granted=0 problem=no limit with this name can have grants…",
	)
	sameSteps(t, playedSteps(t, `"limits":[{"algorithm":"token_bucket","quota":10,"window":"1h"}],"steps":[{"at_ms":0,"op":"grant","units":2,"ttl_ms":60000}]`),
		"no granted=0 problem=no limit of the scenario can have grants…")
}

// A change between token_bucket and gcra keeps the counter, and a change to another algorithm does not.
func TestAlgorithmsWithOneCounter(t *testing.T) {
	t.Parallel()
	limit := func(algorithm string) string {
		return `"limits":[{"name":"q","algorithm":"` + algorithm + `","quota":10,"window":"1h"}]`
	}
	for _, c := range [][3]string{{"token_bucket", "gcra", "4"}, {"gcra", "token_bucket", "4"}, {"token_bucket", "fixed_window", "10"}} {
		got := playedSteps(t, limit(c[0])+`,"steps":[{"at_ms":0,"cost":6},{"at_ms":0,"op":"set_limits",`+limit(c[1])+`},{"at_ms":0,"op":"peek","cost":0}]`)
		if got[2] != "ok granted=0 remaining="+c[2] {
			t.Errorf("%s to %s: %q", c[0], c[1], got)
		}
	}
}

func TestEngineMembers(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{
		`"op":"reserve","ttl_ms":60000`:                                         "steps[0].reservation",
		`"op":"reserve","reservation":"a"`:                                      "steps[0].ttl_ms",
		`"op":"reserve","reservation":"a","ttl_ms":999`:                         "steps[0].ttl_ms",
		`"op":"reserve","reservation":"a","ttl_ms":60000,"repeat":2`:            "steps[0].repeat",
		`"op":"reserve","reservation":"a","ttl_ms":60000,"lease":"l"`:           "steps[0].lease",
		`"op":"reserve","reservation":"a","ttl_ms":60000,"idempotency_key":"k"`: "steps[0].idempotency_key",
		`"op":"settle"`: "steps[0].reservation",
		`"op":"settle","reservation":"a","ttl_ms":5`: "steps[0].ttl_ms",
		`"op":"extend","reservation":"a"`:            "steps[0].ttl_ms",
		`"reservation":"a"`:                          "steps[0].reservation",
		`"idempotency_key":""`:                       "steps[0].idempotency_key",
		`"idempotency_key":"a b"`:                    "steps[0].idempotency_key",
		`"op":"refund","idempotency_key":"k"`:        "steps[0].idempotency_key",
		`"op":"grant","units":1`:                     "steps[0].ttl_ms",
		`"op":"grant","ttl_ms":1`:                    "steps[0].units",
		`"units":1`:                                  "steps[0]",
	} {
		line := `{"id":"a",` + tenAnHour + `"steps":[{"at_ms":0,` + step + `}]}`
		if out, err := RunOne(t.Context(), []byte(line), Config{NewLimiter: inProcess}); err == nil || !strings.Contains(string(out), `"field": "`+want+`"`) {
			t.Errorf("%s: %s, want an error at %s", step, out, want)
		}
	}
}
