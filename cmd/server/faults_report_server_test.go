//go:build faults

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// The markers of the page between which a run writes.
const (
	faultsBegin = "<!-- make test-faults writes from here -->"
	faultsEnd   = "<!-- to here -->"
)

// A faultRow is a row of the table. Empty cells do not apply.
type faultRow struct {
	goal, fault             string
	first, healthy, p99     time.Duration // slowest answer of the first second, p99 before and after it
	open, closed, local     string        // over-admission
	charges, counts         string
	recovery, seen, measure string
	failed                  []string // the goals that were not met
}

// row returns the row of the table for a scenario with a load.
func (m *faultMeasure) row() faultRow {
	second := m.start.Add(time.Second)
	over := func(mode string) string { return fmt.Sprint(m.over[mode]) }
	for mode, n := range m.over {
		m.over[mode] = max(n, 0)
	}
	return faultRow{
		healthy: quantile(m.ledger, m.start.Add(-faultAlone/2), m.start, 0.99),
		first:   quantile(m.ledger, m.start, second, 1),
		p99:     quantile(m.ledger, second, m.end, 0.99),
		open:    over("open"), closed: over("closed"), local: over("local"),
		charges:  fmt.Sprintf("%d / %d", m.lost, m.double),
		counts:   fmt.Sprintf("%d of %d", max(0, m.answered-m.counted), m.answered),
		recovery: fmt.Sprintf("%.1f s", m.recovery.Seconds()),
		seen:     strings.Join(m.seen, "; "),
		measure: fmt.Sprintf("%d of %d answers degraded, %d of them `503`; %d errors; %d of %d units that failure modes admitted are charged; %d warnings in the log of a node",
			m.degraded, m.answered, m.unavailable, m.errors, m.later, m.meanwhile, m.warnings) + m.notes,
		failed: m.failed,
	}
}

// markdown is the row's line.
func (r faultRow) markdown() string {
	ms := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%d ms", max(d.Milliseconds(), 1))
	}
	or := func(text string) string {
		if text == "" {
			return "–"
		}
		return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
	}
	held := "counts held"
	if len(r.failed) > 0 {
		held = "**not held**: " + strings.Join(r.failed, "; ")
	}
	cells := []string{
		r.goal, r.fault, ms(r.healthy), ms(r.first), ms(r.p99), or(r.open), or(r.closed), or(r.local), or(r.charges), or(r.counts), or(r.recovery),
		or(r.measure), or(r.seen), or(held),
	}
	return "| " + strings.Join(cells, " | ") + " |"
}

var faultHead = []string{
	"goal", "what fails", "p99 before", "slowest in the first second", "p99 after it", "over `open`", "over `closed`", "over `local`",
	"charges lost / double", "counts lost", "recovery", "answers", "what the operator sees", "result",
}

// A faultTable replaces the rows of the page that this run measured.
type faultTable struct {
	rows map[string]string // by goal
}

// newFaultTable returns a table that is written to the page when the test ends.
func newFaultTable(t *testing.T) *faultTable {
	table := &faultTable{rows: map[string]string{}}
	t.Cleanup(func() {
		for _, goal := range slices.Sorted(maps.Keys(table.rows)) {
			t.Log(table.rows[goal])
		}
		if page := os.Getenv("HEADGATE_FAULTS_PAGE"); page != "" && len(table.rows) > 0 {
			if err := table.write(page); err != nil {
				t.Error(err)
			}
		}
	})
	return table
}

func (f *faultTable) add(r faultRow) { f.rows[r.goal] = r.markdown() }

// write keeps the rows of scenarios that did not run.
func (f *faultTable) write(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), faultsBegin)
	old, after, ended := strings.Cut(rest, faultsEnd)
	if !found || !ended {
		return fmt.Errorf("%s has not the markers %s and %s", page, faultsBegin, faultsEnd)
	}
	rows := map[string]string{}
	for l := range strings.Lines(old) {
		if goal, ok := strings.CutPrefix(l, "| "); ok {
			goal, _, _ = strings.Cut(goal, " |")
			rows[goal] = strings.TrimSpace(l)
		}
	}
	delete(rows, faultHead[0])
	runs := f.machine()
	if former, _, found := strings.Cut(old, "\n| "+faultHead[0]); found && len(f.rows) < len(rows)/2 { // most rows are of a run before
		runs = strings.TrimSpace(former) + "\n\n" + strings.Replace(runs, "Last run: ", "Then, "+strings.Join(slices.Sorted(maps.Keys(f.rows)), ", ")+": ", 1)
	}
	maps.Copy(rows, f.rows)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n%s\n\n| %s |\n|%s\n", faultsBegin, runs, strings.Join(faultHead, " | "), strings.Repeat("---|", len(faultHead)))
	for _, s := range allFaults() {
		if row, ok := rows[s.goal]; ok {
			b.WriteString(row + "\n")
		}
	}
	return os.WriteFile(page, []byte(before+b.String()+"\n"+faultsEnd+after), 0o644) //nolint:gosec // a document
}

// machine describes the machine on which the newest rows were measured.
func (f *faultTable) machine() string {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("an unknown commit")
	}
	load, _ := os.ReadFile("/proc/loadavg")
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("Last run: %d rows, %s, commit %s, %d processors that other work shares (load average %s at the end), %s.",
		len(f.rows), time.Now().UTC().Format("2006-01-02 15:04 UTC"), strings.TrimSpace(string(commit)), runtime.NumCPU(), average, runtime.Version())
}

func readText(r io.Reader) string {
	text, err := io.ReadAll(r)
	if err != nil {
		return ""
	}
	return string(text)
}
