package views

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	classAttribute = regexp.MustCompile(`class=("[^"]*"|\{[^\n]*?\}[ >\n])`)
	tableElement   = regexp.MustCompile(`<table\b`)
	className      = regexp.MustCompile(`[a-z][a-z-]*`)
	// componentClass matches the classes of Button, Badge, Field, Tile, Table, and Card.
	componentClass = regexp.MustCompile(`^(button|badge|tile|panel)(-[a-z]+)?$|` +
		`^(icon-button|field|tiles|card|cards|chart|stack|rank|data|figure-cell)$`)
)

// Other templates call the components; they do not repeat their classes.
func TestClassesOfComponents(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.templ")
	if err != nil || len(names) < 20 {
		t.Fatalf("found the templates %q: %v", names, err)
	}
	found := map[string]bool{}
	for _, name := range names {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var wrong []string
		if tableElement.Match(body) {
			wrong = append(wrong, "<table>")
		}
		for _, attribute := range classAttribute.FindAllString(string(body), -1) {
			for _, class := range className.FindAllString(strings.TrimPrefix(attribute, "class="), -1) {
				if componentClass.MatchString(class) {
					wrong = append(wrong, class)
				}
			}
		}
		if name == "components.templ" {
			for _, class := range wrong {
				found[class] = true
			}
			continue
		}
		if slices.Sort(wrong); len(wrong) > 0 {
			t.Errorf("%s has %q: use the components of components.templ", name, slices.Compact(wrong))
		}
	}
	for _, want := range []string{"<table>", "badge", "field", "tile", "tiles", "cards", "figure-cell", "icon-button", "panel"} {
		if !found[want] {
			t.Errorf("components.templ does not have %s: the test does not read it", want)
		}
	}
}
