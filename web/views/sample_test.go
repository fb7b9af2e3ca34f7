package views

import (
	"bytes"
	"strings"
	"testing"
)

// The sample page renders in both themes and has each class of a component.
func TestSamplePage(t *testing.T) {
	t.Parallel()
	for _, theme := range []string{"", "light", "dark"} {
		var page bytes.Buffer
		if err := SamplePage(Page{Title: "Components", Theme: theme}).Render(t.Context(), &page); err != nil {
			t.Fatal(err)
		}
		body := page.String()
		if theme != "" && !strings.Contains(body, `data-theme="`+theme+`"`) {
			t.Errorf("the page does not have the theme %s", theme)
		}
		for _, class := range []string{
			"button", "button-quiet", "button-bad", "button-small", "wide", "icon-button",
			"badge", "badge-good", "badge-warn", "badge-bad", "badge-violet", "field", "error", "hint", "option", "box",
			"tile", "tile-good", "tile-bad", "tile-warn", "change-good", "change-bad", "stack", "rank", "data", "figure-cell",
			"card", "panel", "panel-bad", "chart", "histogram", "strip", "measure", "notice-good", "notice-warn", "notice-bad", "empty",
			"chips", "filters", "segments", "escape",
		} {
			if !hasClass(body, class) {
				t.Errorf("theme %q: no element has the class %s", theme, class)
			}
		}
	}
}

func hasClass(body, class string) bool {
	for _, attribute := range strings.Split(body, `class="`)[1:] {
		value, _, _ := strings.Cut(attribute, `"`)
		if strings.Contains(" "+value+" ", " "+class+" ") {
			return true
		}
	}
	return false
}
