package main

import (
	"encoding/json"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// decoded returns the JSON values of a text, one after the other.
func decoded(t *testing.T, text string) (list []any) {
	t.Helper()
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var v any
		err := d.Decode(&v)
		if err == io.EOF {
			return list
		}
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		list = append(list, v)
	}
}

// The scenarios of the page about simulate are played and have the shown answers. Its
// tables have the members and operations that openapi.yaml has.
func TestSimulatePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	plays := regexp.MustCompile("(?s)```sh\nheadgate simulate <<'END'\n(.*?)END\n```.*?```json\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(plays) != strings.Count(string(page), "```")/4 {
		t.Errorf("%d of the blocks are played", 4*len(plays))
	}
	for _, p := range plays {
		out, _ := command(t, nil, p[1], "simulate") // the error of a wrong scenario is in its line
		if got, shown := decoded(t, out), decoded(t, p[2]); !reflect.DeepEqual(got, shown) {
			t.Errorf("%sthe page shows\n%v, but the answer is\n%v", p[1], shown, got)
		}
	}

	if out, err := command(t, nil, simulateExample, "simulate"); err != nil || !strings.Contains(out, `"allowed_count": 2`) {
		t.Errorf("the example of --help: %v, %s", err, out)
	}

	text, err := os.ReadFile("../../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct{ Enum []string }
			}
		}
	}
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	for schema, heading := range map[string]string{"Scenario": "## A scenario", "Step": "## A step"} {
		_, part, _ := strings.Cut(string(page), heading+"\n")
		part, _, _ = strings.Cut(part, "\n## ")
		var rows, want []string
		for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(part, -1) {
			rows = append(rows, m[1])
		}
		for name, p := range spec.Components.Schemas[schema].Properties {
			want = append(append(want, name), p.Enum...)
		}
		slices.Sort(rows)
		if slices.Sort(want); len(want) < 5 || !slices.Equal(rows, want) {
			t.Errorf("%s has rows for %v, want %v", heading, rows, want)
		}
	}
}
