package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/deploy/recipes"
)

// rowNames returns the first cells of the tables in a text, without the links. The names in one cell can be separated by
// commas.
func rowNames(text string) (names []string) {
	link := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.HasPrefix(line, "|---") {
			names = append(names, strings.TrimSpace(link.ReplaceAllString(cells[1], "$1")))
		}
	}
	return names
}

// Each way that docs/gateways.md names has a row with its measured cost, and each row of the benchmark is on the page.
func TestEachWayHasAMeasuredCost(t *testing.T) {
	t.Parallel()
	docs := filepath.Join("..", "..", "docs")
	page, err := os.ReadFile(filepath.Join(docs, waysPage))
	if err != nil {
		t.Fatal(err)
	}
	measured := section(t, docs, parts[len(parts)-1])
	rows := rowNames(measured)
	for _, row := range slices.Clone(rows) {
		name, _, _ := strings.Cut(row, ", ") // what follows is the number of checks
		rows = append(rows, name)
	}
	var r results
	var empty strings.Builder
	r.writeWays(&empty)
	for _, name := range rowNames(empty.String()) {
		if !slices.Contains(rows, name) {
			t.Errorf("docs/%s has no row %q: run make bench-ways", waysPage, name)
		}
	}
	ways, rest, found := strings.Cut(strings.ReplaceAll(string(page), measured, ""), "## Forward-auth")
	gateways, _, ends := strings.Cut(rest, "These have unit tests only.")
	_, gateways, begins := strings.Cut(gateways, "### Recipes")
	if !found || !begins || !ends {
		t.Fatalf("docs/%s has no sections Forward-auth and Recipes", waysPage)
	}
	for _, cell := range append(rowNames(ways), rowNames(gateways)...) {
		for name := range strings.SplitSeq(cell, ", ") {
			if name != "way" && name != "gateway" && !slices.Contains(rows, name) {
				t.Errorf("the way %q of docs/%s has no measured cost", name, waysPage)
			}
		}
	}
	for _, recipe := range recipes.All {
		if !slices.ContainsFunc(gatewayWays, func(w gatewayWay) bool { return w.recipe == recipe.Name }) {
			t.Errorf("the recipe %s is not measured", recipe.Name)
		}
	}
}

// The costs are differences and ratios within a round.
func TestCostsOfWays(t *testing.T) {
	t.Parallel()
	bare := gatewayWays[0].without()
	r := results{
		waysAtRate: map[string]series{
			noop:                        {{p50: 0.2, p99: 1}, {p50: 0.4, p99: 2}, {p50: 0.6, p99: 3}},
			bare:                        {{p50: 0.2, p99: 1}, {p50: 0.4, p99: 2}, {p50: 0.6, p99: 3}},
			gatewayWays[0].name:         {{p50: 0.4, p99: 4}, {p50: 0.8, p99: 6}, {p50: 1.2, p99: 8}},
			called(callWays[0].title()): {{p50: 0.1, p99: 1}, {p50: 0.2, p99: 2}, {p50: 0.3, p99: 3}},
		},
		waysFull: map[string]series{
			noop:                        {{server: 20}, {server: 40}, {server: 60}},
			bare:                        {{server: 20}, {server: 40}, {server: 60}},
			gatewayWays[0].name:         {{server: 50, behind: 10}, {server: 100, behind: 20}, {server: 150, behind: 30}},
			called(callWays[0].title()): {{server: 10}, {server: 20}, {server: 30}},
		},
	}
	var b strings.Builder
	r.writeWays(&b)
	for _, want := range []string{
		"| nginx | 0.40 / 2 | 0.40 / 4 | 2 | 40 | 60 | 20 | 3 |\n",
		"| `POST /v1/check` | 0.20 / 2 | 0.50 | 20 | 0.50 |\n",
		"| no-op | 0.40 / 2 | 1 | 40 | 1 |\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, b.String())
		}
	}
}

// A gateway without Headgate has a recipe that does not name it.
func TestBareRecipes(t *testing.T) {
	t.Parallel()
	a := recipes.Addresses{
		Headgate: "127.0.0.1:7001", Upstream: "127.0.0.1:7002", Gateway: "127.0.0.1:7003", Inner: "127.0.0.1:7004", Key: "the-key",
	}
	for _, recipe := range recipes.All {
		for _, bare := range []bool{false, true} {
			file, err := recipe.Write(filepath.Join("..", "..", "deploy"), t.TempDir(), a, bare)
			if err != nil {
				t.Fatal(err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if asks := recipe.Check.Match(text) || recipe.Name == "Caddy" && strings.Contains(string(text), "7001"); asks == bare {
				t.Errorf("%s, bare %t, asks Headgate: %t", recipe.Name, bare, asks)
			}
			if strings.Contains(string(text), "HEADGATE_KEY") || !strings.Contains(string(text), "7002") {
				t.Errorf("%s, bare %t:\n%s", recipe.Name, bare, text)
			}
		}
		if _, err := recipe.Write(filepath.Join("..", "..", "deploy"), t.TempDir(), a, false, "no such text", ""); err == nil {
			t.Errorf("%s: an edit of a text that the recipe does not have", recipe.Name)
		}
	}
}

// The load generator for RESP reads each kind of reply of Headgate and counts the denied ones.
func TestRepliesOfRESP(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		buffer := make([]byte, 64)
		_, _ = server.Read(buffer)
		_, _ = fmt.Fprint(server, "*4\r\n:1\r\n:-1\r\n$2\r\nok\r\n$0\r\n\r\n*4\r\n:0\r\n:5\r\n$5\r\nquota\r\n$1\r\nx\r\n")
		_, _ = server.Read(buffer)
		_, _ = fmt.Fprint(server, "-NOAUTH no key\r\n")
	}()
	c := &respCaller{conn: client, in: bufio.NewReader(client), text: []byte("PING\r\n"), checks: 2, allowed: 1}
	defer c.Close()
	if got, err := c.Call(t.Context()); err != nil || got.Allowed != 1 || got.Denied != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := c.Call(t.Context()); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("an error: %+v, %v", got, err)
	}
}
