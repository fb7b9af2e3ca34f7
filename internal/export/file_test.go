package export

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/metrics"
)

// rows yields n rows, and then err if it is not nil.
func rows(n int, err error) func(func([]string, error) bool) {
	return func(yield func([]string, error) bool) {
		for i := range n {
			if !yield([]string{fmt.Sprint(i), "=x"}, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// A file has a header and its rows, and says when it is cut off.
func TestServe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rows, most int
		want       string
	}{
		{0, 2, "n,text\n"},
		{2, 2, "n,text\n0,'=x\n1,'=x\n"},
		{3, 2, "n,text\n0,'=x\n1,'=x\n\"cut off: this file has at most 2 lines, and there are more; choose a shorter time\"\n"},
	} {
		w := httptest.NewRecorder()
		f := File{Name: "f", Columns: []Column{{"n", ""}, {"text", ""}}, Rows: rows(c.rows, nil), MaxRows: c.most}
		if err := f.Serve(w, slog.New(slog.DiscardHandler)); err != nil || w.Body.String() != c.want {
			t.Errorf("%d rows, at most %d: %v %q", c.rows, c.most, err, w.Body)
		}
		if w.Header().Get("Content-Disposition") != `attachment; filename="f.csv"` {
			t.Error(w.Header())
		}
	}
}

// An error before the first row is returned, and nothing is sent. A later one breaks the connection.
func TestServeFails(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	w := httptest.NewRecorder()
	if err := (File{Rows: rows(0, gone)}).Serve(w, slog.New(slog.DiscardHandler)); !errors.Is(err, gone) || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("%v %v %q", err, w.Header(), w.Body)
	}
	for _, n := range []int{1, pageRows, pageRows + 1} {
		var log bytes.Buffer
		var got error
		func() {
			defer func() { got, _ = recover().(error) }()
			_ = File{Name: "f", Rows: rows(n, gone)}.Serve(httptest.NewRecorder(), slog.New(slog.NewTextHandler(&log, nil)))
		}()
		if !errors.Is(got, http.ErrAbortHandler) || !strings.Contains(log.String(), "gone") {
			t.Errorf("after %d rows: %v, %s", n, got, &log)
		}
	}
}

// Reads end after a page that is not full.
func TestPages(t *testing.T) {
	t.Parallel()
	for n, reads := range map[int]int{0: 1, 1: 1, pageRows: 2, pageRows + 1: 2, 3*pageRows - 1: 3} {
		left, asked := n, 0
		fetch := func(last *int) ([]int, error) {
			if asked++; (last == nil) != (asked == 1) {
				t.Errorf("read %d follows %v", asked, last)
			}
			page := make([]int, min(left, pageRows))
			left -= len(page)
			return page, nil
		}
		got := 0
		for range pages(fetch, func(int) ([]string, error) { return nil, nil }) {
			got++
		}
		if got != n || asked != reads {
			t.Errorf("%d rows: %d in %d reads, want %d", n, got, asked, reads)
		}
	}
}

// The parts of a range have all its steps once.
func TestParts(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 1, 9, 17, 0, 0, time.UTC)
	for step, length := range map[metrics.Step]time.Duration{metrics.Minute: time.Minute, metrics.Hour: time.Hour, metrics.Day: 24 * time.Hour} {
		for _, steps := range []time.Duration{1, stepsAtOnce - 1, stepsAtOnce, stepsAtOnce + 1, 3*stepsAtOnce + 5} {
			to, at, n := from.Add(steps*length), from, 0
			for p := range parts(metrics.Query{Policy: "p", From: from, To: to, Step: step}) {
				if n++; !p.From.Equal(at) || p.Policy != "p" || n > 1 && !p.From.Truncate(length).Equal(p.From) || p.To.Sub(p.From) > stepsAtOnce*length {
					t.Fatalf("%s: part %d of %d steps: %+v", step, n, steps, p)
				}
				at = p.To
			}
			if !at.Equal(to) {
				t.Errorf("%s: the parts of %d steps end at %v", step, steps, at)
			}
		}
	}
}

// docs/api.md has the columns of each file, in their order.
func TestDocsHaveTheColumns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	for file, columns := range map[string][]Column{"usage": UsageColumns, "refusals": DenialColumns, "audit": AuditColumns} {
		var want strings.Builder
		fmt.Fprintf(&want, "### Columns of `%s.csv`\n\n| column | meaning |\n|---|---|\n", file)
		for _, c := range columns {
			fmt.Fprintf(&want, "| `%s` | %s |\n", c.Name, c.Text)
		}
		if !strings.Contains(string(page), want.String()+"\n") {
			t.Errorf("docs/api.md does not have:\n%s", &want)
		}
	}
}
