package audit_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/audit"
)

func line() audit.Entry {
	return audit.Entry{
		ID: "01900000-0000-7000-8000-000000000001", Seq: 1, At: time.Date(2026, 11, 21, 12, 0, 0, 123456000, time.UTC), Revision: 7,
		Actor: audit.Actor{Kind: "user", ID: "u1", Name: "Ädele"}, Origin: audit.Origin{RequestID: "r1", Address: "192.0.2.1"},
		TenantID: "t1", Action: "plan.publish", Object: "p1", ObjectName: "pro", After: json.RawMessage(`{"a":1}`),
	}
}

// The form of a line never changes, so that old lines stay verifiable. The expected hash
// was computed outside of this program, from the comment of Sum.
func TestSumKeepsItsForm(t *testing.T) {
	t.Parallel()
	e := line()
	const want = "fce7e8a1efea195c22870331136f8f0347a05e53561b8eb9e16106675f82efda"
	if got := e.Sum(audit.Hash{}).String(); got != want {
		t.Errorf("hash %s, want %s", got, want)
	}
	e.At = e.At.In(time.FixedZone("", 3600)) // the same instant
	if got := e.Sum(audit.Hash{}).String(); got != want {
		t.Errorf("in another zone %s, want %s", got, want)
	}
}

// Every field, and where one ends and the next begins, is in the hash.
func TestSumHoldsEveryField(t *testing.T) {
	t.Parallel()
	seen := map[audit.Hash]string{}
	for what, change := range map[string]func(*audit.Entry){
		"nothing":        func(*audit.Entry) {},
		"id":             func(e *audit.Entry) { e.ID = "x" },
		"seq":            func(e *audit.Entry) { e.Seq++ },
		"at":             func(e *audit.Entry) { e.At = e.At.Add(time.Microsecond) },
		"revision":       func(e *audit.Entry) { e.Revision++ },
		"actor kind":     func(e *audit.Entry) { e.Actor.Kind = "system" },
		"actor id":       func(e *audit.Entry) { e.Actor.ID = "u2" },
		"actor name":     func(e *audit.Entry) { e.Actor.Name = "" },
		"request":        func(e *audit.Entry) { e.Origin.RequestID = "" },
		"address":        func(e *audit.Entry) { e.Origin.Address = "" },
		"tenant":         func(e *audit.Entry) { e.TenantID = "" },
		"action":         func(e *audit.Entry) { e.Action = "plan.delete" },
		"object":         func(e *audit.Entry) { e.Object = "" },
		"object name":    func(e *audit.Entry) { e.ObjectName = "Pro" },
		"before":         func(e *audit.Entry) { e.Before = json.RawMessage(`{}`) },
		"empty before":   func(e *audit.Entry) { e.Before = json.RawMessage{} },
		"after":          func(e *audit.Entry) { e.After = json.RawMessage(`{"a": 1}`) },
		"no after":       func(e *audit.Entry) { e.After = nil },
		"before, after":  func(e *audit.Entry) { e.Before, e.After = e.After, e.Before },
		"field boundary": func(e *audit.Entry) { e.Object, e.ObjectName = "p1p", "ro" },
	} {
		e := line()
		change(&e)
		h := e.Sum(audit.Hash{})
		if other, twice := seen[h]; twice {
			t.Errorf("%s and %s have one hash", what, other)
		}
		seen[h] = what
	}
	e := line()
	if e.Sum(audit.Hash{1}) == e.Sum(audit.Hash{}) {
		t.Error("the hash before is not in the hash")
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	var lines []audit.Entry
	var last audit.Hash
	for seq := int64(1); seq <= 3; seq++ {
		e := line()
		e.Seq = seq
		e.Hash = e.Sum(last)
		last = e.Hash
		lines = append(lines, e)
	}
	head := audit.Head{Seq: 3, Hash: last, Outside: 2}
	walk := func(lines []audit.Entry, h audit.Head, outside int64) audit.Verdict {
		var w audit.Walk
		for i := range lines {
			if !w.Next(&lines[i]) {
				break
			}
		}
		return w.End(h, outside)
	}
	if v := walk(lines, head, 2); v.Broken != nil || v.Lines != 3 {
		t.Errorf("an unbroken chain: %+v", v)
	}
	if v := walk(nil, audit.Head{}, 0); v.Broken != nil || v.Lines != 0 {
		t.Errorf("an empty chain: %+v", v)
	}
	for _, test := range []struct {
		lines   []audit.Entry
		outside int64
		want    string
	}{
		{lines[:2], 2, "line 3 is missing"},
		{[]audit.Entry{lines[0], lines[2]}, 2, "line 2 is missing: the next one is 3"},
		{[]audit.Entry{lines[0], lines[0]}, 2, "line 1 (" + lines[0].ID + ") is a duplicate"},
		{[]audit.Entry{lines[1]}, 2, "line 1 is missing"},
		{lines, 1, "the lines outside the chain are 1, and were 2"},
	} {
		if v := walk(test.lines, head, test.outside); v.Broken == nil || !strings.HasPrefix(v.Broken.Error(), test.want) {
			t.Errorf("%v, want %s", v.Broken, test.want)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, word := range []string{"", "Ada", "a\nb", "\xff\xfe", strings.Repeat("ä", 257), strings.Repeat("\x00", 300), "\u202e", "�"} {
		f.Add(word)
	}
	f.Fuzz(func(t *testing.T, word string) {
		got := audit.Clean(word)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > 256 || strings.ContainsAny(got, "\n\r\x00\x1b\u2028\u202e") {
			t.Errorf("%q became %q", word, got)
		}
		if audit.Clean(got) != got {
			t.Errorf("%q became %q, and then %q", word, got, audit.Clean(got))
		}
	})
}

func TestCleanLeavesGoodWords(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "Ada O'Neil", `a\b "c" <d>`, "日本語 👩‍👩‍👧", strings.Repeat("ä", 256)} {
		if got := audit.Clean(word); got != word {
			t.Errorf("%q became %q", word, got)
		}
	}
	if got := audit.Clean(strings.Repeat("a", 257)); got != strings.Repeat("a", 255)+"…" {
		t.Errorf("a long word became %q", got)
	}
	if got := audit.Clean("a\x1b[2J\r\n"); got != `a\u001b[2J\u000d\u000a` {
		t.Errorf("a word with control characters became %q", got)
	}
}

// A chain that was cut or rewritten, with a matching head, does not contain the head that
// was noted before.
func TestNotedHeads(t *testing.T) {
	t.Parallel()
	chain := func(names ...string) (lines []audit.Entry, head audit.Head) {
		for i, name := range names {
			e := line()
			e.Seq, e.ObjectName = int64(i+1), name
			e.Hash = e.Sum(head.Hash)
			lines, head = append(lines, e), audit.Head{Seq: e.Seq, Hash: e.Hash}
		}
		return lines, head
	}
	_, noted := chain("a", "b")
	read, err := audit.ParseHead(noted.String())
	if err != nil || read != noted {
		t.Fatalf("%v, %v", read, err)
	}
	for _, text := range []string{"", "2", "0:" + noted.Hash.String(), "2:00", "x:" + noted.Hash.String(), noted.String() + "00"} {
		if _, err := audit.ParseHead(text); err == nil {
			t.Errorf("%q is a head", text)
		}
	}
	for name, c := range map[string]struct {
		lines  []string
		broken int64
	}{"grown": {[]string{"a", "b", "c"}, 0}, "cut": {[]string{"a"}, 2}, "written anew": {[]string{"a", "x", "c"}, 2}, "all anew": {[]string{"x", "b"}, 2}, "empty": {nil, 1}} {
		lines, head := chain(c.lines...)
		walk := audit.Walk{Noted: []audit.Head{noted}}
		for i := range lines {
			if !walk.Next(&lines[i]) {
				break
			}
		}
		var at int64
		if v := walk.End(head, 0); v.Broken != nil {
			at = v.Broken.Seq
		}
		if at != c.broken {
			t.Errorf("%s: broken at %d, want %d", name, at, c.broken)
		}
	}
}
