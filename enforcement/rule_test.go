package enforcement

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func minuteWindow(cell uint32) RuleLimit {
	l := Limit{Name: "l1", Algorithm: FixedWindow, Quota: 10, Window: time.Minute}
	return RuleLimit{Limit: l, Cell: cell, Meter: l.Compile(1)}
}

func TestCompilePlanNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	limits := func(edit func(*RuleLimit)) []RuleLimit {
		l := minuteWindow(1)
		edit(&l)
		return []RuleLimit{l}
	}
	recompiled := func(edit func(*RuleLimit)) []RuleLimit {
		return limits(func(l *RuleLimit) {
			edit(l)
			l.Meter = l.Limit.Compile(1)
		})
	}
	for reason, specs := range map[string][]RuleSpec{
		"has no slug":                {{}},
		"taken by another policy":    {{Policy: "bad"}, {Policy: "bad"}},
		"mode must be enforce":       {{Policy: "bad", Mode: "loud"}},
		"missing must be shared":     {{Policy: "bad", Missing: "no"}},
		"on_failure must be local":   {{Policy: "bad", OnFailure: "no"}},
		"a method is empty":          {{Policy: "bad", Methods: []string{"GET", ""}}},
		"path climbs":                {{Policy: "bad", Path: "/.."}},
		"neither may be empty":       {{Policy: "bad", Attributes: map[string]string{"a": ""}}},
		`attribute "" matches`:       {{Policy: "bad", Attributes: map[string]string{"": "a"}}},
		"is not an IP address":       {{Policy: "bad", Attributes: map[string]string{"ip": "1.2.3"}}},
		"in count_by is empty":       {{Policy: "bad", CountBy: []string{"user", ""}}},
		"not a policy of the plan":   {{Policy: "bad", Replaces: []string{"other"}}},
		"replaces itself":            {{Policy: "bad", Replaces: []string{"bad"}}},
		"through other policies":     {{Policy: "bad", Replaces: []string{"b"}}, {Policy: "b", Replaces: []string{"c"}}, {Policy: "c", Replaces: []string{"bad"}}},
		"has no meter":               {{Policy: "bad", Limits: limits(func(l *RuleLimit) { l.Meter = nil })}},
		"belongs to another limit":   {{Policy: "bad", Limits: limits(func(l *RuleLimit) { l.Quota = 11 })}},
		"has no revision":            {{Policy: "bad", Limits: limits(func(l *RuleLimit) { l.Meter = l.Limit.Compile(0) })}},
		"algorithm must be fixed":    {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Algorithm = 99 })}},
		"quota must be 0 to 1":       {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Quota = -1 })}},
		"quota must be 0 to 10000":   {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Quota = MaxQuota + 1 })}},
		"window must be from 1ms":    {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Window = 0 })}},
		"window must be a whole":     {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Window = 1_000_500 })}},
		"window must be from 1ms to": {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Window = MaxWindow + MinWindow })}},
		"burst only token_bucket":    {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Burst = -9 })}},
		"former numbers":             {{Policy: "bad", Limits: recompiled(func(l *RuleLimit) { l.Algorithm = GCRA })}},
		"name is taken":              {{Policy: "bad", Limits: []RuleLimit{minuteWindow(1), minuteWindow(2)}}},
		"its cell 1 is that of a.l":  {{Policy: "a", Limits: []RuleLimit{minuteWindow(1)}}, {Policy: "bad", Limits: []RuleLimit{minuteWindow(1)}}},
	} {
		if reason == "former numbers" {
			specs[0].Limits[0].Meter.Formers = []Former{{}}
		}
		p, err := CompilePlan("pro", 3, specs)
		switch {
		case err == nil:
			t.Errorf("%q: compiled to %v", reason, p)
		case !strings.Contains(err.Error(), reason):
			t.Errorf("%q, want %q in it", err, reason)
		case !strings.Contains(err.Error(), "pro") || reason != "has no slug" && !strings.Contains(err.Error(), "policy bad"):
			t.Errorf("%q does not name plan and policy", err)
		}
	}
	if _, err := CompilePlan("pro", 1, make([]RuleSpec, MaxRules+1)); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("too many policies: %v", err)
	}
}

func TestCompilePlanNeverPanics(t *testing.T) {
	t.Parallel()
	word := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "b", "ip", "ip/64", "*", "/{x}/*", "enforce", "shadow", "local", "skip"}), rapid.String())
	words := rapid.SliceOfN(word, 0, 3)
	number := rapid.OneOf(rapid.Int64Range(-1, 3), rapid.Int64())
	rapid.Check(t, func(t *rapid.T) {
		specs := make([]RuleSpec, rapid.IntRange(0, 4).Draw(t, "policies"))
		for i := range specs {
			specs[i] = RuleSpec{
				Policy: word.Draw(t, "policy"), Path: word.Draw(t, "path"), Methods: words.Draw(t, "methods"), CountBy: words.Draw(t, "count_by"),
				Attributes: rapid.MapOfN(word, word, 0, 2).Draw(t, "attributes"), Replaces: words.Draw(t, "replaces"),
				Mode: PolicyMode(word.Draw(t, "mode")), Missing: Missing(word.Draw(t, "missing")), OnFailure: OnFailure(word.Draw(t, "on_failure")),
			}
			if rapid.Bool().Draw(t, "limited") {
				l := Limit{
					Name: word.Draw(t, "name"), Algorithm: Algorithm(rapid.Byte().Draw(t, "algorithm")), Anchor: Anchor(rapid.Byte().Draw(t, "anchor")),
					Quota: number.Draw(t, "quota"), Burst: number.Draw(t, "burst"), Window: time.Duration(number.Draw(t, "window")),
				}
				specs[i].Limits = []RuleLimit{{Limit: l, Cell: uint32(i), Meter: &Meter{Numbers: Numbers{Quota: l.Quota, Window: l.Window.Microseconds()}, Algorithm: l.Algorithm, Anchor: l.Anchor, Rev: 1}}}
			}
		}
		if p, err := CompilePlan("p", 1, specs); (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

func TestCompilePlanFillsDefaults(t *testing.T) {
	t.Parallel()
	second := minuteWindow(2)
	second.Name = "per-hour"
	specs := []RuleSpec{
		{Policy: "one", Limits: []RuleLimit{minuteWindow(9)}},
		{Policy: "two", Limits: []RuleLimit{minuteWindow(1), second}},
	}
	p, err := CompilePlan("pro", 3, specs)
	if err != nil {
		t.Fatal(err)
	}
	r := p.Rules[0]
	if r.Mode != PolicyEnforce || r.Missing != MissingShared || r.OnFailure != OnFailureLocal || r.Pattern().String() != "*" {
		t.Errorf("%+v", r.RuleSpec)
	}
	names := []string{r.Limits[0].HeaderName, p.Rules[1].Limits[0].HeaderName, p.Rules[1].Limits[1].HeaderName}
	if got := strings.Join(names, " "); got != "one two.l1 two.per-hour" {
		t.Errorf("header names %q", got)
	}
	if specs[0].Limits[0].HeaderName != "" || specs[0].Mode != "" {
		t.Error("the caller's specs were changed")
	}
}

// The index finds the same rules as a search through all rules.
func TestIndexAgreesWithAWalk(t *testing.T) {
	t.Parallel()
	segment := rapid.SampledFrom([]string{"a", "b", "c", "A", "a%2Fb", "*"})
	path := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 9).Draw(t, "kind") {
		case 0:
			return ""
		case 1:
			return "/"
		}
		return "/" + strings.Join(rapid.SliceOfN(segment, 1, 5).Draw(t, "segments"), "/")
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		one := rapid.SampledFrom([]string{"a", "b", "c", "A", "a%2Fb", "{x}"})
		segments := rapid.SliceOfN(one, 0, 4).Draw(t, "segments")
		if rapid.Bool().Draw(t, "rest") {
			segments = append(segments, "*")
		}
		if len(segments) == 0 && rapid.Bool().Draw(t, "all") {
			return "*"
		}
		return "/" + strings.Join(segments, "/")
	})
	method := rapid.SampledFrom([]string{"GET", "HEAD", "POST", "PATCH", ""})
	rapid.Check(t, func(t *rapid.T) {
		specs := make([]RuleSpec, rapid.SampledFrom([]int{0, 1, 5, 70, MaxRules}).Draw(t, "rules"))
		for i := range specs {
			specs[i] = RuleSpec{Policy: fmt.Sprint("p", i), Path: pattern.Draw(t, "pattern")}
			if m := method.Draw(t, "method"); m != "" {
				specs[i].Methods = []string{m, "PATCH", m}
			}
			if rapid.IntRange(0, 3).Draw(t, "attribute") == 0 {
				specs[i].Attributes = map[string]string{"tier": "free"}
			}
		}
		p, err := CompilePlan("p", 1, specs)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c := Check{Path: path.Draw(t, "path"), Method: method.Draw(t, "method")}
			if rapid.Bool().Draw(t, "free") {
				c.Attributes = []Attribute{{"tier", "free"}}
			}
			var want []uint16
			for i, spec := range specs {
				matches := naiveMatch(spec.Path, c.Path)
				if p.Rules[i].pattern.Match(c.Path) != matches {
					t.Fatalf("pattern %q of %q: want %t", spec.Path, c.Path, matches)
				}
				if matches && (spec.Methods == nil || slices.Contains(spec.Methods, c.Method)) && (spec.Attributes == nil || c.Attributes != nil) {
					want = append(want, uint16(i))
				}
			}
			if got := p.match(&c, nil); !slices.Equal(got, want) {
				t.Fatalf("%q %q: rules %v, want %v", c.Method, c.Path, got, want)
			}
		}
	})
}

// Two different lists of values never share a counter.
func TestPartitionsNeverCollide(t *testing.T) {
	t.Parallel()
	var p Partition
	seen := make(map[[16]byte]string)
	add := func(t interface{ Fatalf(string, ...any) }, values []string, missing []bool) {
		var text strings.Builder
		for i, v := range values {
			if missing[i] {
				p.addMissing()
				text.WriteString("missing,")
			} else {
				p.Add(v)
				fmt.Fprintf(&text, "%q,", v)
			}
		}
		sum := p.Sum()
		if other, ok := seen[sum]; ok && other != text.String() {
			t.Fatalf("%s and %s share a counter", text.String(), other)
		}
		seen[sum] = text.String()
	}
	odd := []string{"", "\x00", "\x00\x00\x00\x00", "\x00\x00\x00\x01", "\x00\x00\x00\x02a", "a", "aa", "a\x00", ":", "|", "a:b", "a,b", "A", "é", "e\u0301", "\xff", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 1024)}
	add(t, nil, nil)
	for _, a := range odd {
		add(t, []string{a}, []bool{false})
		for _, b := range odd {
			add(t, []string{a, b}, []bool{false, false})
			for _, c := range odd {
				add(t, []string{a, b, c}, []bool{false, false, false})
			}
		}
		add(t, []string{a, ""}, []bool{false, true})
		add(t, []string{"", a}, []bool{true, false})
	}
	for n := range 5 {
		add(t, make([]string, n), []bool{true, true, true, true}[:n])
	}
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(odd), rapid.String()), 0, 4).Draw(t, "values")
		missing := make([]bool, len(values))
		for i := range missing {
			missing[i] = rapid.IntRange(0, 4).Draw(t, "missing") == 0
		}
		add(t, values, missing)
	})
}

func TestShareOf(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, nodes := rapid.Int64Range(0, MaxQuota).Draw(t, "n"), rapid.IntRange(1, math.MaxInt32).Draw(t, "nodes")
		got := shareOf(n, nodes)
		if n == 0 {
			if got != 0 {
				t.Fatalf("a share of nothing is %d", got)
			}
			return
		}
		if got < 1 || got*int64(nodes) < n || (got-1)*int64(nodes) >= n {
			t.Fatalf("the share of %d among %d is %d", n, nodes, got)
		}
	})
}
