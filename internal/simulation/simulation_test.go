package simulation

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/enforcement/inprocess"
	"github.com/headgate/headgate/internal/problem"
)

func inProcess(now func() int64) (enforcement.Limiter, func(), error) {
	return inprocess.New(inprocess.Config{Now: now}), func() {}, nil
}

// run plays lines and gives the lines that come out.
func run(t testing.TB, cfg Config, lines ...string) []string {
	t.Helper()
	if cfg.NewLimiter == nil {
		cfg.NewLimiter = inProcess
	}
	var out strings.Builder
	err := Run(t.Context(), strings.NewReader(strings.Join(lines, "\n")), &out, cfg)
	var counted Failures
	failures := strings.Count(out.String(), `"error": {`)
	if errors.As(err, &counted); int(counted) != failures || failures == 0 && err != nil {
		t.Fatalf("%v after %d error lines", err, failures)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// A step as it is printed.
type printed struct {
	At           int64  `json:"at_ms"`
	Allowed      bool   `json:"allowed"`
	AllowedCount int64  `json:"allowed_count"`
	Granted      int64  `json:"granted"`
	RetryAfter   *int64 `json:"retry_after_ms"`
	Delay        int64  `json:"delay_ms"`
	Limits       []struct {
		Name       string `json:"name"`
		Allowed    bool   `json:"allowed"`
		Remaining  int64  `json:"remaining"`
		ResetAfter int64  `json:"reset_after_ms"`
		RetryAfter *int64 `json:"retry_after_ms"`
	} `json:"limits"`
}

// short writes a step for comparing: ok or no, how many, units, retry, the delay if there is one,
// and of each limit ok or no, remaining, reset and retry.
func (p printed) short() string {
	word := map[bool]string{true: "ok", false: "no"}
	retry := func(ms *int64) string {
		if ms == nil {
			return "never"
		}
		return fmt.Sprint(*ms)
	}
	s := fmt.Sprintf("%s %d %d %s", word[p.Allowed], p.AllowedCount, p.Granted, retry(p.RetryAfter))
	if p.Delay != 0 {
		s += fmt.Sprintf(" waits %d", p.Delay)
	}
	for _, l := range p.Limits {
		s += fmt.Sprintf(" | %s %d %d %s", word[l.Allowed], l.Remaining, l.ResetAfter, retry(l.RetryAfter))
	}
	return s
}

func TestDesignExample(t *testing.T) {
	t.Parallel()
	got := run(t, Config{}, `{"id": "a", "start_ms": 0, "limits": [{"name": "m", "algorithm": "fixed_window", "quota": 10, "window_ms": 60000, "anchor": "first_hit"}],`+
		` "steps": [{"at_ms": 45000, "op": "check", "cost": 1, "repeat": 1, "key": "k"}]}`)
	want := `{"id": "a", "steps": [{"at_ms": 45000, "allowed": true, "allowed_count": 1, "granted": 1, "retry_after_ms": 0, "delay_ms": 0, "limits": [{"name": "m", "allowed": true, "remaining": 9, "reset_after_ms": 60000, "retry_after_ms": 0}]}]}`
	if len(got) != 1 || got[0] != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

const (
	fixed10   = `{"name":"m","algorithm":"fixed_window","quota":10,"window":"1m"}`
	clock10   = `{"name":"m","algorithm":"fixed_window","quota":10,"window":"1m","anchor":"clock"}`
	log3      = `{"name":"m","algorithm":"sliding_window_log","quota":3,"window":"1m"}`
	counter10 = `{"name":"m","algorithm":"sliding_window_counter","quota":10,"window":"1m"}`
	bucket10  = `{"name":"m","algorithm":"token_bucket","quota":10,"window":"10s"}`
	queue5    = `{"name":"m","algorithm":"leaky_bucket","quota":1,"window":"1s","burst":5}`
	places2   = `{"name":"m","algorithm":"concurrency","quota":2,"window":"30s"}`
)

// stories are scenarios, each a list of limits and of steps with what they give.
var stories = []struct {
	name   string
	limits string
	steps  [][2]string
}{
	{"a window opens with the first charge", fixed10, [][2]string{
		{`"at_ms":45000,"repeat":10`, "ok 10 10 0 | ok 0 60000 0"},
		{`"at_ms":104999`, "no 0 0 1 | no 0 1 1"},
		{`"at_ms":105000`, "ok 1 1 0 | ok 9 60000 0"},
	}},
	{"a leaky bucket", queue5, [][2]string{
		{`"at_ms":0,"repeat":3`, "ok 3 3 0 waits 2000 | ok 2 3000 0"},
		{`"at_ms":500,"op":"peek","cost":2`, "ok 1 0 0 waits 2500 | ok 0 4500 0"},
		{`"at_ms":500,"op":"take_up_to","cost":9`, "ok 1 2 0 waits 2500 | ok 0 4500 0"},
		{`"at_ms":500`, "no 0 0 500 | no 0 4500 500"},
		{`"at_ms":1000,"cost":0`, "ok 1 0 0 waits 4000 | ok 1 4000 0"},
		{`"at_ms":1000,"op":"refund","cost":2`, "ok 1 0 0 | ok 3 2000 0"},
		{`"at_ms":1000,"op":"set_limits","limits":[` + strings.Replace(queue5, `"burst":5`, `"burst":50`, 1) + `]`, "ok 1 0 0"},
		{`"at_ms":1000`, "ok 1 1 0 waits 2000 | ok 47 3000 0"},
		{`"at_ms":1000,"op":"force","cost":50`, "ok 1 50 0 | no 0 53000 53000"},
		{`"at_ms":1000,"op":"reset"`, "ok 1 0 0 | ok 50 0 0"},
	}},
	{"a window on the clock", clock10, [][2]string{
		{`"at_ms":45000,"repeat":12`, "no 10 10 15000 | no 0 15000 15000"},
		{`"at_ms":60000`, "ok 1 1 0 | ok 9 60000 0"},
	}},
	{"a cost is taken whole or not at all", fixed10, [][2]string{
		{`"at_ms":0,"cost":3`, "ok 1 3 0 | ok 7 60000 0"},
		{`"at_ms":0,"cost":8`, "no 0 0 60000 | no 7 60000 60000"},
		{`"at_ms":0,"cost":11`, "no 0 0 never | no 7 60000 never"},
		{`"at_ms":0,"cost":0,"repeat":5`, "ok 5 0 0 | ok 7 60000 0"},
		{`"at_ms":0,"cost":3,"repeat":4`, "no 2 6 60000 | no 1 60000 60000"},
	}},
	{"quota 0 refuses everything", `{"name":"m","algorithm":"token_bucket","quota":0,"window":"1s"}`, [][2]string{
		{`"at_ms":0`, "no 0 0 never | no 0 0 never"},
		{`"at_ms":0,"cost":0`, "no 0 0 never | no 0 0 never"},
	}},
	{"peek changes nothing and says what check would", fixed10, [][2]string{
		{`"at_ms":0,"op":"peek","cost":4,"repeat":3`, "ok 3 0 0 | ok 6 60000 0"},
		{`"at_ms":0,"cost":4`, "ok 1 4 0 | ok 6 60000 0"},
		{`"at_ms":10,"op":"peek","cost":7,"repeat":3`, "no 0 0 59990 | no 6 59990 59990"},
	}},
	{"force charges what does not fit", fixed10, [][2]string{
		{`"at_ms":0,"op":"force","cost":8`, "ok 1 8 0 | ok 2 60000 0"},
		{`"at_ms":0,"op":"force","cost":8`, "ok 1 8 0 | no 0 60000 60000"},
		{`"at_ms":0`, "no 0 0 60000 | no 0 60000 60000"},
	}},
	{"a forced bucket goes into debt", bucket10, [][2]string{
		{`"at_ms":0,"op":"force","cost":15`, "ok 1 15 0 | no 0 15000 never"},
		{`"at_ms":0`, "no 0 0 6000 | no 0 15000 6000"},
		{`"at_ms":5999`, "no 0 0 1 | no 0 9001 1"},
		{`"at_ms":6000`, "ok 1 1 0 | ok 0 10000 0"},
	}},
	{"leases hold places, also after their holder crashed", places2, [][2]string{
		{`"at_ms":0,"op":"acquire","lease":"a","ttl_ms":5000`, "ok 1 1 0 | ok 1 5000 0"},
		{`"at_ms":1000,"op":"acquire","lease":"b"`, "ok 1 1 0 | ok 0 30000 0"},
		{`"at_ms":2000,"op":"acquire","lease":"c"`, "no 0 0 3000 | no 0 29000 3000"},
		{`"at_ms":2000,"op":"acquire","lease":"a","ttl_ms":5000,"repeat":3`, "ok 3 3 0 | ok 0 29000 0"},
		{`"at_ms":6999,"op":"acquire","lease":"c"`, "no 0 0 1 | no 0 24001 1"},
		{`"at_ms":7000,"op":"acquire","lease":"c"`, "ok 1 1 0 | ok 0 30000 0"},
		{`"at_ms":7000,"op":"release","lease":"b"`, "ok 1 0 0 | ok 1 30000 0"},
		{`"at_ms":7000,"op":"release","lease":"b","repeat":2`, "ok 2 0 0 | ok 1 30000 0"},
		{`"at_ms":7000,"op":"release","lease":"nobody"`, "ok 1 0 0 | ok 1 30000 0"},
		{`"at_ms":7000,"op":"acquire","lease":"c","key":"other"`, "ok 1 1 0 | ok 1 30000 0"},
	}},
	{"a check without a lease has one of its own", places2, [][2]string{
		{`"at_ms":0,"op":"peek","repeat":3`, "ok 3 0 0 | ok 1 30000 0"},
		{`"at_ms":0,"repeat":3`, "no 2 2 30000 | no 0 30000 30000"},
		{`"at_ms":1000,"op":"force"`, "ok 1 1 0 | no 0 30000 0"},
		{`"at_ms":30000`, "ok 1 1 0 | ok 0 30000 0"},
		{`"at_ms":30000,"op":"take_up_to","cost":5,"lease":"a"`, "no 0 0 1000 | no 0 30000 1000"},
		{`"at_ms":31000,"op":"take_up_to","cost":5,"lease":"a"`, "ok 1 1 0 | ok 0 30000 0"},
		{`"at_ms":31000,"op":"refund","lease":"a"`, "ok 1 0 0 | ok 1 29000 0"},
		{`"at_ms":31000,"op":"reset"`, "ok 1 0 0 | ok 2 0 0"},
	}},
	{"a refund gives back, and no more than was taken", fixed10, [][2]string{
		{`"at_ms":0,"cost":4`, "ok 1 4 0 | ok 6 60000 0"},
		{`"at_ms":1,"op":"refund","cost":3`, "ok 1 0 0 | ok 9 59999 0"},
		{`"at_ms":1,"op":"refund","cost":3,"repeat":2`, "ok 2 0 0 | ok 10 59999 0"},
	}},
	{"a log gives back its newest entries first", log3, [][2]string{
		{`"at_ms":0`, "ok 1 1 0 | ok 2 60000 0"},
		{`"at_ms":10000,"repeat":2`, "ok 2 2 0 | ok 0 60000 0"},
		{`"at_ms":20000`, "no 0 0 40000 | no 0 50000 40000"},
		{`"at_ms":20000,"op":"refund","cost":2`, "ok 1 0 0 | ok 2 40000 0"},
	}},
	{"a counter gives back the current window, then the previous", counter10, [][2]string{
		{`"at_ms":0,"cost":8`, "ok 1 8 0 | ok 2 120000 0"},
		{`"at_ms":60000,"cost":2`, "ok 1 2 0 | ok 0 120000 0"},
		{`"at_ms":60000,"op":"refund","cost":4`, "ok 1 0 0 | ok 4 60000 0"},
	}},
	{"reset forgets", bucket10, [][2]string{
		{`"at_ms":0,"cost":10`, "ok 1 10 0 | ok 0 10000 0"},
		{`"at_ms":0,"op":"reset","repeat":2`, "ok 2 0 0 | ok 10 0 0"},
		{`"at_ms":0,"cost":10`, "ok 1 10 0 | ok 0 10000 0"},
	}},
	{"take_up_to grants what is left", fixed10, [][2]string{
		{`"at_ms":0,"op":"take_up_to","cost":4,"repeat":3`, "ok 3 10 0 | ok 0 60000 0"},
		{`"at_ms":1,"op":"take_up_to","cost":100,"repeat":3`, "no 0 0 59999 | no 0 59999 59999"},
		{`"at_ms":60000,"op":"take_up_to","cost":0`, "no 0 0 never | ok 10 0 0"},
	}},
	{"keys are told apart", log3, [][2]string{
		{`"at_ms":0,"repeat":3,"key":"a"`, "ok 3 3 0 | ok 0 60000 0"},
		{`"at_ms":0,"repeat":3,"key":"A"`, "ok 3 3 0 | ok 0 60000 0"},
		{`"at_ms":0,"repeat":3`, "ok 3 3 0 | ok 0 60000 0"},
		{`"at_ms":0,"key":"a"`, "no 0 0 60000 | no 0 60000 60000"},
	}},
	{"the clock goes back and nothing is given twice", fixed10, [][2]string{
		{`"at_ms":50000,"repeat":10`, "ok 10 10 0 | ok 0 60000 0"},
		{`"at_ms":20000`, "no 0 0 90000 | no 0 90000 90000"},
		{`"at_ms":110000`, "ok 1 1 0 | ok 9 60000 0"},
	}},
	{"all limits or none", fixed10 + `,{"name":"n","algorithm":"fixed_window","quota":2,"window":"1s"}`, [][2]string{
		{`"at_ms":0,"repeat":3`, "no 2 2 1000 | ok 8 60000 0 | no 0 1000 1000"},
		{`"at_ms":1000,"cost":3`, "no 0 0 never | ok 8 59000 0 | no 2 0 never"},
	}},
	{"changed numbers keep what was used", fixed10, [][2]string{
		{`"at_ms":0,"cost":6`, "ok 1 6 0 | ok 4 60000 0"},
		{`"at_ms":1000,"op":"set_limits","limits":[{"name":"m","algorithm":"fixed_window","quota":20,"window":"1m"}]`, "ok 1 0 0"},
		{`"at_ms":1000`, "ok 1 1 0 | ok 13 59000 0"},
		{`"at_ms":1000,"op":"set_limits","limits":[{"name":"m","algorithm":"fixed_window","quota":5,"window":"2m"}]`, "ok 1 0 0"},
		{`"at_ms":1000`, "no 0 0 119000 | no 0 119000 119000"},
	}},
	{"a bucket keeps its tokens", bucket10, [][2]string{
		{`"at_ms":0,"cost":10`, "ok 1 10 0 | ok 0 10000 0"},
		{`"at_ms":4000,"op":"set_limits","limits":[{"name":"m","algorithm":"token_bucket","quota":100,"window":"10s"}]`, "ok 1 0 0"},
		{`"at_ms":5000,"op":"peek","cost":0`, "ok 1 0 0 | ok 14 8600 0"}, // 4 at 1/s, 10 at 10/s
	}},
	{"another algorithm or anchor starts anew, and finds itself again", fixed10, [][2]string{
		{`"at_ms":0,"cost":6`, "ok 1 6 0 | ok 4 60000 0"},
		{`"at_ms":0,"op":"set_limits","limits":[` + counter10 + `]`, "ok 1 0 0"},
		{`"at_ms":0,"cost":9`, "ok 1 9 0 | ok 1 120000 0"},
		{`"at_ms":0,"op":"set_limits","limits":[` + clock10 + `]`, "ok 1 0 0"},
		{`"at_ms":0,"cost":2`, "ok 1 2 0 | ok 8 60000 0"},
		{`"at_ms":0,"op":"set_limits","limits":[{"name":"other","algorithm":"fixed_window","quota":1,"window":"1s"}]`, "ok 1 0 0"},
		{`"at_ms":0`, "ok 1 1 0 | ok 0 1000 0"},
		{`"at_ms":0,"op":"set_limits","limits":[` + fixed10 + `]`, "ok 1 0 0"},
		{`"at_ms":0`, "ok 1 1 0 | ok 3 60000 0"},
	}},
	// Worked examples of the field.
	{"80 of the last minute and half of 40 more are 100", `{"algorithm":"sliding_window_counter","quota":100,"window":"1m","anchor":"clock"}`, [][2]string{
		{`"at_ms":0,"cost":40`, "ok 1 40 0 | ok 60 120000 0"},
		{`"at_ms":90000,"cost":80`, "ok 1 80 0 | ok 0 90000 0"},
		{`"at_ms":90000`, "no 0 0 1 | no 0 90000 1"},
	}},
	{"a bucket of 15 at 10 a minute", `{"algorithm":"token_bucket","quota":10,"window":"1m","burst":15}`, [][2]string{
		{`"at_ms":0,"repeat":16`, "no 15 15 6000 | no 0 90000 6000"},
		{`"at_ms":6000`, "ok 1 1 0 | ok 0 90000 0"},
	}},
	{"gcra is the bucket by another name", `{"algorithm":"gcra","quota":10,"window":"1m","burst":15}`, [][2]string{
		{`"at_ms":0,"repeat":16`, "no 15 15 6000 | no 0 90000 6000"},
	}},
	{"700,000 a second does not drift", `{"algorithm":"token_bucket","quota":700000,"window":"1s","burst":1}`, [][2]string{
		{`"at_ms":0`, "ok 1 1 0 | ok 0 1 0"},
		{`"at_ms":1`, "ok 1 1 0 | ok 0 1 0"},
	}},
}

func TestStories(t *testing.T) {
	t.Parallel()
	for _, story := range stories {
		t.Run(story.name, func(t *testing.T) {
			t.Parallel()
			var steps []string
			for _, s := range story.steps {
				steps = append(steps, "{"+s[0]+"}")
			}
			text := `{"id":"s","start_ms":1800000000000,"limits":[` + story.limits + `],"steps":[` + strings.Join(steps, ",") + `]}`
			one, err := RunOne(t.Context(), []byte(text), Config{NewLimiter: inProcess})
			if err != nil {
				t.Fatal(err)
			}
			if many := run(t, Config{}, text)[0] + "\n"; string(one) != many {
				t.Errorf("RunOne and Run differ:\n%s%s", one, many)
			}
			var got struct{ Steps []printed }
			if err := json.Unmarshal(one, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Steps) != len(story.steps) {
				t.Fatalf("%d steps: %s", len(got.Steps), one)
			}
			for i, s := range story.steps {
				if got := got.Steps[i].short(); got != s[1] {
					t.Errorf("step %d {%s}\n got %s\nwant %s", i, s[0], got, s[1])
				}
			}
		})
	}
}

// withLimit and withStep are a scenario with one odd limit or step.
func withLimit(l string) string {
	return `{"id":"x","limits":[` + l + `],"steps":[]}`
}

func withStep(s string) string {
	return `{"id":"x","limits":[` + fixed10 + `],"steps":[{"at_ms":0},{` + s + `}]}`
}

func TestErrorLines(t *testing.T) {
	t.Parallel()
	many := func(n int) string {
		limits := make([]string, n)
		for i := range limits {
			limits[i] = fmt.Sprintf(`{"name":"n%d","algorithm":"gcra","quota":1,"window":"1s"}`, i)
		}
		return strings.Join(limits, ",")
	}
	for _, c := range []struct{ line, id, field, message string }{
		{`nonsense`, `null`, "", ""},
		{`{`, `null`, "", ""},
		{`[]`, `null`, "", "object"},
		{`"a"`, `null`, "", "object"},
		{"{\"id\":\"\xff\"}", `null`, "id", "UTF-8"},
		{`{"id":"x"} {}`, `"x"`, "", ""},
		{`{"id":null}`, `null`, "id", ""},
		{`{"id":7}`, `null`, "id", "string"},
		{`{"id":"a","id":"b","limits":[],"steps":[]}`, `null`, "id", "twice"},
		{`{"id":"x","steps":[]}`, `"x"`, "limits", "required"},
		{`{"id":"x","limits":[` + fixed10 + `]}`, `"x"`, "steps", "required"},
		{`{"steps":[{"at_ms":true}],"limits":[],"id":"late"}`, `"late"`, "steps[0].at_ms", ""},
		{`{"id":"x","limit":[]}`, `"x"`, "limit", "unknown"},
		{`{"id":"x","limits":{},"steps":[]}`, `"x"`, "limits", "array"},
		{`{"id":"x","limits":[],"steps":[]}`, `"x"`, "limits", "at least one"},
		{withLimit(many(33)), `"x"`, "limits", "at most 32"},
		{`{"id":"x","mode":"shadow","limits":[` + fixed10 + `],"steps":[]}`, `"x"`, "mode", "must be enforce, degrade or delay"},
		{`{"id":"x","delay_ms":5,"limits":[` + fixed10 + `],"steps":[]}`, `"x"`, "delay_ms", "only mode delay"},
		{`{"id":"x","mode":"delay","delay_ms":60001,"limits":[` + fixed10 + `],"steps":[]}`, `"x"`, "delay_ms", "60000"},
		{`{"id":"x","start_ms":-1,"limits":[],"steps":[]}`, `"x"`, "start_ms", "from 0"},
		{`{"id":"x","start_ms":1.5,"limits":[],"steps":[]}`, `"x"`, "start_ms", ""},
		{withLimit(`{"algorithm":"leaky","quota":1,"window":"1s"}`), `"x"`, "limits[0].algorithm", "gcra, leaky_bucket or"},
		{withLimit(`{"algorithm":"leaky_bucket","quota":1,"window":"1s","burst":0}`), `"x"`, "limits[0].burst", "1 to"},
		{withLimit(`{"algorithm":"concurrency","quota":1}`), `"x"`, "limits[0].window_ms", "required"},
		{withLimit(`{"algorithm":"concurrency","quota":1001,"window":"1s"}`), `"x"`, "limits[0].quota", "0 to 1000"},
		{withLimit(`{"algorithm":"concurrency","quota":1,"window":"month"}`), `"x"`, "limits[0].window", "only fixed_window"},
		{withLimit(`{"algorithm":"concurrency","quota":1,"window":"1s","burst":2}`), `"x"`, "limits[0].burst", "only"},
		{withLimit(`{"algorithm":"Fixed_window","quota":1,"window":"1s"}`), `"x"`, "limits[0].algorithm", "must be"},
		{withLimit(`{"quota":1,"window":"1s"}`), `"x"`, "limits[0].algorithm", "required"},
		{withLimit(`{"algorithm":"gcra","window":"1s"}`), `"x"`, "limits[0].quota", "required"},
		{withLimit(`{"algorithm":"gcra","quota":1}`), `"x"`, "limits[0].window_ms", "required"},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"1s","window_ms":1000}`), `"x"`, "limits[0].window", "only one"},
		{withLimit(`{"algorithm":"gcra","quota":-1,"window":"1s"}`), `"x"`, "limits[0].quota", ""},
		{withLimit(`{"algorithm":"gcra","quota":1000000000001,"window":"1s"}`), `"x"`, "limits[0].quota", ""},
		{withLimit(`{"algorithm":"gcra","quota":1e3,"window":"1s"}`), `"x"`, "limits[0].quota", ""},
		{withLimit(`{"algorithm":"gcra","quota":"1","window":"1s"}`), `"x"`, "limits[0].quota", ""},
		{withLimit(`{"algorithm":"gcra","quota":null,"window":"1s"}`), `"x"`, "limits[0].quota", ""},
		{withLimit(`{"algorithm":"sliding_window_log","quota":10001,"window":"1s"}`), `"x"`, "limits[0].quota", "10000"},
		{withLimit(`{"algorithm":"gcra","quota":1,"window_ms":0}`), `"x"`, "limits[0].window_ms", ""},
		{withLimit(`{"algorithm":"gcra","quota":1,"window_ms":31622400001}`), `"x"`, "limits[0].window_ms", ""},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"month"}`), `"x"`, "limits[0].window", "only fixed_window has calendar windows"},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"367d"}`), `"x"`, "limits[0].window", ""},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"1s","burst":0}`), `"x"`, "limits[0].burst", ""},
		{withLimit(`{"burst":2,"algorithm":"fixed_window","quota":1,"window":"1s"}`), `"x"`, "limits[0].burst", "only"},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"1s","anchor":"clock"}`), `"x"`, "limits[0].anchor", "only"},
		{withLimit(`{"algorithm":"fixed_window","quota":1,"window":"1s","anchor":"dawn"}`), `"x"`, "limits[0].anchor", "first_hit"},
		{withLimit(`{"name":"A","algorithm":"gcra","quota":1,"window":"1s"}`), `"x"`, "limits[0].name", ""},
		{withLimit(`{"name":"","algorithm":"gcra","quota":1,"window":"1s"}`), `"x"`, "limits[0].name", ""},
		{withLimit(fixed10 + "," + fixed10), `"x"`, "limits[1].name", "same name"},
		{withLimit(`{"algorithm":"gcra","quota":1,"window":"1s","queue":1}`), `"x"`, "limits[0].queue", "unknown"},
		{withStep(`"op":"check"`), `"x"`, "steps[1].at_ms", "required"},
		{withStep(`"at_ms":0,"op":"charge"`), `"x"`, "steps[1].op", "must be"},
		{withStep(`"at_ms":0,"op":"release"`), `"x"`, "steps[1].lease", "required for release"},
		{withStep(`"at_ms":0,"op":"release","lease":"l","ttl_ms":1`), `"x"`, "steps[1].ttl_ms", "takes no"},
		{withStep(`"at_ms":0,"op":"reset","lease":"l"`), `"x"`, "steps[1].lease", "takes no"},
		{withStep(`"at_ms":0,"lease":""`), `"x"`, "steps[1].lease", "1 to 128 bytes"},
		{withStep(`"at_ms":0,"lease":"` + strings.Repeat("l", 129) + `"`), `"x"`, "steps[1].lease", "1 to 128 bytes"},
		{withStep(`"at_ms":0,"lease":7`), `"x"`, "steps[1].lease", ""},
		{withStep(`"at_ms":0,"ttl_ms":0`), `"x"`, "steps[1].ttl_ms", ""},
		{withStep(`"at_ms":0,"ttl_ms":31622400001`), `"x"`, "steps[1].ttl_ms", ""},
		{withStep(`"at_ms":-1`), `"x"`, "steps[1].at_ms", "from 0"},
		{withStep(`"at_ms":5711817600000`), `"x"`, "steps[1].at_ms", ""},
		{withStep(`"at_ms":0,"cost":-1`), `"x"`, "steps[1].cost", ""},
		{withStep(`"at_ms":0,"cost":2147483648`), `"x"`, "steps[1].cost", ""},
		{withStep(`"at_ms":0,"repeat":0`), `"x"`, "steps[1].repeat", ""},
		{withStep(`"at_ms":0,"repeat":10000001`), `"x"`, "steps[1].repeat", ""},
		{withStep(`"at_ms":0,"key":7`), `"x"`, "steps[1].key", ""},
		{withStep(`"at_ms":0,"at_ms":0`), `"x"`, "steps[1].at_ms", "twice"},
		{withStep(`"at_ms":0,"Cost":1`), `"x"`, "steps[1].Cost", "unknown"},
		{withStep(`"at_ms":0,"limits":[` + fixed10 + `]`), `"x"`, "steps[1].limits", "only set_limits"},
		{withStep(`"at_ms":0,"op":"set_limits"`), `"x"`, "steps[1].limits", "required"},
		{withStep(`"at_ms":0,"op":"set_limits","limits":[]`), `"x"`, "steps[1].limits", "at least one"},
		{withStep(`"at_ms":0,"op":"set_limits","limits":[{"algorithm":"x"}]`), `"x"`, "steps[1].limits[0].algorithm", ""},
	} {
		good := withStep(`"at_ms":0`)
		out := run(t, Config{}, c.line, good)
		if len(out) != 2 || !strings.Contains(out[1], `"allowed": true`) {
			t.Errorf("%s: the run did not go on: %q", c.line, out)
			continue
		}
		var got struct {
			ID    json.RawMessage
			Error struct{ Field, Message string }
			Steps any
		}
		if err := json.Unmarshal([]byte(out[0]), &got); err != nil {
			t.Errorf("%s: %v", out[0], err)
		}
		if string(got.ID) != c.id || got.Error.Field != c.field || got.Error.Message == "" || !strings.Contains(got.Error.Message, c.message) || got.Steps != nil {
			t.Errorf("%s\n got %s\nwant id %s, field %q, message with %q", c.line, out[0], c.id, c.field, c.message)
		}
		one, err := RunOne(t.Context(), []byte(c.line), Config{NewLimiter: inProcess})
		if strings.TrimSuffix(string(one), "\n") != out[0] || !problem.Is(err, problem.Malformed) {
			t.Errorf("%s: RunOne says %s, %v", c.line, one, err)
		}
	}
}

func TestManyScenariosShareNothing(t *testing.T) {
	t.Parallel()
	made, cleaned := 0, 0
	cfg := Config{NewLimiter: func(now func() int64) (enforcement.Limiter, func(), error) {
		made++
		l, _, err := inProcess(now)
		return l, func() { cleaned++ }, err
	}}
	lines := []string{""}
	const n = 2*runnerScenarios + 10
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"id":"%d","limits":[%s],"steps":[{"at_ms":%d,"repeat":3},{"at_ms":%d}]}`, i, log3, 1000-i%7, 1000), " \r")
	}
	out := run(t, cfg, lines...)
	if len(out) != n {
		t.Fatalf("%d lines", len(out))
	}
	for i, line := range out {
		if !strings.HasPrefix(line, fmt.Sprintf(`{"id": "%d"`, i)) || !strings.Contains(line, `"allowed_count": 3`) || strings.Count(line, `"allowed": false`) != 2 {
			t.Fatalf("line %d: %s", i, line)
		}
	}
	if made != 3 || cleaned != made {
		t.Errorf("%d limiters made, %d cleaned up", made, cleaned)
	}
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	good := withStep(`"at_ms":0`)
	out := run(t, Config{MaxLine: 1000}, good+strings.Repeat(" ", 1000-len(good)), good+strings.Repeat(" ", 200_000), good)
	if len(out) != 3 || !strings.HasPrefix(out[1], `{"id": null, "error": {"field": "", "message": "a scenario may have at most 1000 bytes`) {
		t.Fatalf("%q", out)
	}
	for _, i := range []int{0, 2} {
		if strings.Contains(out[i], "error") {
			t.Error(out[i])
		}
	}
}

func TestRunOneIsBounded(t *testing.T) {
	t.Parallel()
	cfg := Config{NewLimiter: inProcess}
	if _, err := RunOne(t.Context(), []byte(withStep(`"at_ms":0,"repeat":9999`)), cfg); err != nil {
		t.Errorf("10,000 repetitions: %v", err)
	}
	for name, c := range map[string]struct {
		text, field string
		kind        problem.Kind
	}{
		"repetitions": {withStep(`"at_ms":0,"repeat":10000`), "steps[1].repeat", problem.Malformed},
		"evaluations": {`{"limits":[` + fixed10 + `,{"algorithm":"gcra","quota":1,"window":"1s"},{"algorithm":"gcra","quota":1,"window":"1s"}],"steps":[{"at_ms":0,"repeat":7000}]}`, "steps[0].repeat", problem.Malformed},
		"bytes":       {withStep(`"at_ms":0,"key":"` + strings.Repeat("k", MaxOneBytes) + `"`), "", problem.TooLarge},
	} {
		out, err := RunOne(t.Context(), []byte(c.text), cfg)
		if !problem.Is(err, c.kind) || !strings.Contains(string(out), `"field": "`+c.field+`"`) {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if out, err := RunOne(ended, []byte(withStep(`"at_ms":0`)), cfg); !errors.Is(err, context.Canceled) || !strings.Contains(string(out), "error") {
		t.Errorf("a context that has ended: %s, %v", out, err)
	}
}

func TestNoLimiter(t *testing.T) {
	t.Parallel()
	broken := errors.New("no route to host")
	cfg := Config{NewLimiter: func(func() int64) (enforcement.Limiter, func(), error) { return nil, nil, broken }}
	if err := Run(t.Context(), strings.NewReader(withStep(`"at_ms":0`)), io.Discard, cfg); !errors.Is(err, broken) {
		t.Errorf("Run = %v", err)
	}
	if out, err := RunOne(t.Context(), []byte(withStep(`"at_ms":0`)), cfg); err == nil || !strings.Contains(string(out), `"id": "x", "error"`) {
		t.Errorf("RunOne = %s, %v", out, err)
	}
}

// gone is a Limiter that decides nothing.
type gone struct{}

func (gone) Take(_ context.Context, _ []enforcement.Request, outcomes []enforcement.Outcome) {
	for i := range outcomes {
		outcomes[i] = enforcement.Outcome{Verdict: enforcement.Unknown, Err: errors.New("cut off")}
	}
}

func TestLimiterAway(t *testing.T) {
	t.Parallel()
	cfg := Config{NewLimiter: func(func() int64) (enforcement.Limiter, func(), error) { return gone{}, func() {}, nil }}
	out := run(t, cfg, withStep(`"at_ms":0`), withStep(`"at_ms":0`))
	want := `{"id": "x", "error": {"field": "steps[0]", "message": "the limiter did not decide: cut off"}}`
	if len(out) != 2 || out[0] != want || out[1] != want {
		t.Errorf("%q", out)
	}
}

func TestAnswersComeAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	stdin, typing := io.Pipe()
	reading, stdout := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Run(ctx, stdin, stdout, Config{NewLimiter: inProcess}) }()
	answers := bufio.NewReader(reading)
	for range 3 {
		if _, err := io.WriteString(typing, withStep(`"at_ms":0`)+"\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, `"steps"`) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	cancel() // while nothing is typed
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v", err)
	}
	_ = typing.Close()
}

func FuzzScenario(f *testing.F) {
	for _, s := range stories {
		f.Add(`{"id":"s","limits":[` + s.limits + `],"steps":[{` + s.steps[0][0] + `}]}`)
	}
	f.Add(withStep(`"at_ms":0,"op":"set_limits","limits":[` + counter10 + `]`))
	f.Add(`{"id":"\ud800"}`)
	f.Add(`{"id":"a","steps":[{}],"limits":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		out, err := RunOne(t.Context(), []byte(text), Config{NewLimiter: inProcess})
		if len(out) == 0 || strings.Count(string(out), "\n") != 1 || out[len(out)-1] != '\n' {
			t.Fatalf("not one line: %q", out)
		}
		var got map[string]json.RawMessage
		if json.Unmarshal(out, &got) != nil {
			t.Fatalf("not JSON: %q", out)
		}
		if _, failed := got["error"]; failed != (err != nil) || len(got) != 2 {
			t.Fatalf("%q with %v", out, err)
		}
	})
}

// Requests over a soft limit pass and charge nothing. They are served cheap, or wait.
func TestSoftModes(t *testing.T) {
	t.Parallel()
	const steps = `"limits": [{"name": "m", "algorithm": "fixed_window", "quota": 3, "window": "1m"}], "steps": [{"at_ms": 0, "cost": 2}, {"at_ms": 1, "cost": 2, "repeat": 4}, {"at_ms": 2, "repeat": 5}, {"at_ms": 3, "op": "peek"}, {"at_ms": 4, "op": "force"}]}`
	limits := func(allowed string, left int, retry int) string {
		return fmt.Sprintf(`"limits": [{"name": "m", "allowed": %s, "remaining": %d, "reset_after_ms": RESET, "retry_after_ms": %d}]}`, allowed, left, retry)
	}
	for mode, over := range map[string][2]string{`"degrade"`: {`"delay_ms": 0`, `, "serve": "cheap"`}, `"delay", "delay_ms": 300`: {`"delay_ms": 300`, ""}} {
		got := run(t, Config{}, `{"id": "a", "mode": `+mode+`, `+steps)
		step := func(at int, count, granted, overCount int, is bool, rest string) string {
			delay, serve := `"delay_ms": 0`, ""
			if is {
				delay, serve = over[0], over[1]
			}
			return fmt.Sprintf(`{"at_ms": %d, "allowed": true, "allowed_count": %d, "granted": %d, "retry_after_ms": 0, %s, "over_count": %d%s, `, at, count, granted, delay, overCount, serve) +
				strings.Replace(rest, "RESET", fmt.Sprint(60000-at), 1)
		}
		want := `{"id": "a", "steps": [` + strings.Join([]string{
			step(0, 1, 2, 0, false, limits("true", 1, 0)), step(1, 4, 0, 4, true, limits("false", 1, 59999)), step(2, 5, 1, 4, true, limits("false", 0, 59998)),
			step(3, 1, 0, 1, true, limits("false", 0, 59997)), step(4, 1, 1, 0, false, limits("false", 0, 59996)),
		}, ", ") + `]}`
		if len(got) != 1 || got[0] != want {
			t.Errorf("%s: got\n%s\nwant\n%s", mode, strings.Join(got, "\n"), want)
		}
	}
}
