package headgate_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// goals are the goals of reliability and security, by the prefix of their IDs. Each has a row in
// docs/faults.md.
var goals = []struct{ prefix, numbers string }{
	{"F-R", "1 2 3 4 5 6 6b 7 7b 8 9 10 11 12 13 14 15 16 17 18"}, // faults of Redis
	{"F-P", "1 1b 2 3 4 5 6 7 8 9 10 11 12"},                      // of Postgres
	{"F-N", "1 2 3 4 5 6 7 8"},                                    // of nodes
	{"F-C", "1 2 3 4 5 6"},                                        // of clocks
	{"F-E", "1 2 3 4 5 6"},                                        // of the embedded store
	{"F-O", "1 2 3 4 5 6 7 8"},                                    // overload
	{"L-", "1 2 3 4"},                                             // load
	{"B-", "1 2 3 4 5 6 7 8 9 10"},                                // bad input
	{"A-", "1 2 3 4 5 6 7 8 9 10 11"},                             // isolation, authentication, authorization
	{"W-", "1 2 3 4 5 6 7 8 9 10 11 12"},                          // browser
	{"S-", "1 2 3 4 5 6 7 8 9 10"},                                // secrets, supply chain
	{"D-", "1 2 3 4 5 6 7 8 9 10 11 12 13 14"},                    // attacks on the limiter
	{"U-", "1 2 3 4 5 6 7 8"},                                     // audit and visibility
}

// invariants is the number of the invariants, I-1 and on. Each has a row in docs/faults.md.
const invariants = 13

// testNames matches the names of tests in a document.
var testNames = regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*(/[\w-]+)?`)

// Each goal and each invariant has one row in docs/faults.md, and no other row is there. The row
// of a goal that is held names a test or a document; the row of another one says what is missing.
func TestFaultsHaveEveryGoal(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, g := range goals {
		for _, number := range strings.Fields(g.numbers) {
			want[g.prefix+number] = true
		}
	}
	for i := range invariants {
		want[fmt.Sprintf("I-%d", i+1)] = true
	}
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+-[A-Z]?\d+[a-z]?) \|(.*)\|$`).FindAllStringSubmatch(string(text), -1) {
		rows++
		id, cells := row[1], strings.Split(row[2], "|")
		if !want[id] {
			t.Errorf("docs/faults.md has a row of %s, which is no goal or is there twice", id)
		}
		delete(want, id)
		verdict, why := strings.Trim(strings.TrimSpace(cells[len(cells)-2]), "*"), cells[len(cells)-1]
		switch {
		case verdict == "not held":
			if !strings.Contains(why, "Missing: ") {
				t.Errorf("%s is %s, and its row does not say what is missing", id, verdict)
			}
		case verdict == "not applicable":
		case !testNames.MatchString(why) && !strings.Contains(why, "](") && !strings.Contains(why, "`make "):
			t.Errorf("the row of %s names no test", id)
		}
	}
	for id := range want {
		t.Errorf("docs/faults.md has no row of %s", id)
	}
	if rows < 143 {
		t.Errorf("%d rows were read, want those of 130 goals and 13 invariants", rows)
	}
}

// The first sentence of docs/faults.md has the counts of its rows.
func TestFaultsAreCounted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	counts, all := map[string]int{}, 0
	for _, row := range regexp.MustCompile(`(?m)^\| [A-Z]+-[A-Z]?\d+[a-z]? \|[^|]*\| \**([a-z ]+?)\** \|`).FindAllStringSubmatch(string(text), -1) {
		counts[row[1]]++
		all++
	}
	want := fmt.Sprintf("Headgate has %d goals of reliability and security: %d held, %d not held, %d not applicable.",
		all, counts["held"], counts["not held"], counts["not applicable"])
	if !strings.Contains(string(text), want) || len(counts) != 3 {
		t.Errorf("the rows are %v, so the page must contain: %s", counts, want)
	}
}

// A fault whose test fails in the table of docs/operations.md is a goal that is not held in docs/faults.md.
func TestFaultPagesAgree(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	goals, err := os.ReadFile("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	verdicts := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+-[A-Z]?\d+[a-z]?) \|[^|]*\| \**([a-z ]+?)\** \|`).FindAllStringSubmatch(string(goals), -1) {
		verdicts[row[1]] = row[2]
	}
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z]+-[A-Z]?\d+[a-z]?) \|.* \| ([^|]*) \|$`).FindAllStringSubmatch(string(table), -1) {
		rows++
		failed := strings.HasPrefix(row[2], "**not held**: ")
		if !failed && row[2] != "counts held" || failed && verdicts[row[1]] != "not held" {
			t.Errorf("%s: %q in docs/operations.md, %q in docs/faults.md", row[1], row[2], verdicts[row[1]])
		}
	}
	if rows < 40 {
		t.Errorf("%d rows were read", rows)
	}
}
