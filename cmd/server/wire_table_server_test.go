//go:build !quick

package main

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"
)

// A wireRow is what one way says of a check and of its decision: a row of three tables of docs/gateways.md.
type wireRow struct {
	attributes, cost, mode                                          string
	once, lease, refundable, reservation                            string
	reason, limits, retry, reset, delay, nearLimit, serve, degraded string
	headers, id                                                     string
}

// wireRows reads the tables of docs/gateways.md, by the first cell of a row.
func wireRows(t *testing.T) map[string]wireRow {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateways.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## What each way can say\n")
	section, _, ended := strings.Cut(section, "\n## ")
	if !found || !ended {
		t.Fatal("docs/gateways.md has no section on what each way can say")
	}
	rows := map[string]wireRow{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i], _, _ = strings.Cut(strings.TrimSpace(cells[i]), ",") // what follows a comma is for people
		}
		r := rows[cells[0]]
		switch {
		case !strings.HasPrefix(line, "|"), cells[0] == "way", strings.HasPrefix(cells[0], "---"):
			continue
		case len(cells) == 4:
			r.attributes, r.cost, r.mode = cells[1], cells[2], cells[3]
		case len(cells) == 5:
			r.once, r.lease, r.refundable, r.reservation = cells[1], cells[2], cells[3], cells[4]
		case len(cells) == 11:
			r.reason, r.limits, r.retry, r.reset, r.delay, r.nearLimit = cells[1], cells[2], cells[3], cells[4], cells[5], cells[6]
			r.serve, r.degraded, r.headers, r.id = cells[7], cells[8], cells[9], cells[10]
		default:
			t.Fatalf("a row of docs/gateways.md has %d cells: %s", len(cells), line)
		}
		rows[cells[0]] = r
	}
	return rows
}

// sayable returns the checks of the script, without the parts that a protocol cannot express.
func (r wireRow) sayable(t *testing.T, script []wireCheck) []wireCheck {
	t.Helper()
	projected := slices.Clone(script)
	for i := range projected {
		c := &projected[i]
		switch r.attributes {
		case "all":
		case "`ip`":
			c.user, c.tokens, c.key = "", "", ""
		case "`key`":
			name := "login"
			if i%3 == 0 {
				name = "other"
			}
			*c = wireCheck{method: "CL.THROTTLE", path: "/throttle/" + name, key: name + ":" + cmp.Or(c.user, "u9"), cost: c.cost, mode: c.mode}
		default:
			t.Fatalf("docs/gateways.md says %q of attributes", r.attributes)
		}
		if r.cost == "no" {
			c.cost = -1
		}
		if r.mode == "no" {
			c.mode = ""
		}
		if r.once == "no" {
			c.once = ""
		}
		if r.lease == "no" {
			c.lease = ""
		}
		if r.refundable == "no" {
			c.refundable = false
		}
	}
	return projected
}
