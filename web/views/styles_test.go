package views

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	cssComment     = regexp.MustCompile(`(?s)/\*.*?\*/`)
	cssDeclaration = regexp.MustCompile(`([\w-]+):\s*([^;{}]+)[;}]`)
	cssToken       = regexp.MustCompile(`^var\(--(font-(xs|s|m|l|xl|2xl|3xl)|space-[1-8]|radius-[sml])\)$`)
	cssCalculation = regexp.MustCompile(`^calc\((-1 \* )?var\(--space-[1-8]\)( \+ var\(--space-[1-8]\))*\)$`)
	cssValues      = regexp.MustCompile(`[\w-]+\([^()]*(?:\([^()]*\)[^()]*)*\)|\S+`)
	cssBreakpoint  = regexp.MustCompile(`\((?:min-|max-)?width[^)]*\)`)
	cssSpacing     = regexp.MustCompile(`^(margin|padding)(-[a-z-]+)?$|^(row-|column-)?gap$`)
	cssSize        = regexp.MustCompile(`(\d*\.?\d+(?:rem|em|px|%)|var\(--font-\w+\))(?:/|$)`)
)

// cssExceptions are values outside the scales. A hairline border has 1px. Code
// and escaped characters keep their proportion to the text around them. The text of a display on
// a wall depends on the width of the screen.
var cssExceptions = map[string]string{
	"spacing":       `^(0|auto|1px|-1px)$`,
	"font-size":     `^(inherit|0\.87em|var\(--font-screen\))$`,
	"border-radius": `^(0|inherit|50%)$`,
}

func ownStyleSheets(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("../static/css/*.css")
	if err != nil || len(names) < 8 {
		t.Fatalf("found the style sheets %q: %v", names, err)
	}
	sheets := map[string]string{}
	for _, name := range names {
		if strings.Contains(name, "uplot") {
			continue // a vendored file
		}
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sheets[filepath.Base(name)] = cssComment.ReplaceAllString(string(body), "")
	}
	return sheets
}

// offScale returns the values of a declaration that no scale has.
func offScale(property, value string) []string {
	kind := property
	values := cssValues.FindAllString(value, -1)
	switch {
	case cssSpacing.MatchString(property):
		kind = "spacing"
	case property == "font" && value != "inherit":
		kind, values = "font-size", nil
		for _, size := range cssSize.FindAllStringSubmatch(value, -1) {
			values = append(values, size[1])
		}
	case property != "font-size" && property != "border-radius":
		return nil
	}
	var wrong []string
	for _, v := range values {
		exception := regexp.MustCompile(cssExceptions[kind]).MatchString(v)
		calculated := kind == "spacing" && cssCalculation.MatchString(v)
		prefix := map[string]string{"spacing": "var(--space-", "font-size": "var(--font-", "border-radius": "var(--radius-"}[kind]
		token := cssToken.MatchString(v) && strings.HasPrefix(v, prefix)
		if !token && !calculated && !exception {
			wrong = append(wrong, v)
		}
	}
	return wrong
}

// The style sheets use seven font sizes, eight spaces, three radii, and three
// breakpoints.
func TestStylesUseTheScales(t *testing.T) {
	t.Parallel()
	checked := 0
	for name, css := range ownStyleSheets(t) {
		for _, d := range cssDeclaration.FindAllStringSubmatch(css, -1) {
			if strings.HasPrefix(d[1], "--") {
				continue
			}
			checked++
			for _, v := range offScale(d[1], strings.TrimSpace(d[2])) {
				t.Errorf("%s: %s: %s is not on the scale", name, d[1], v)
			}
		}
		for _, condition := range cssBreakpoint.FindAllString(css, -1) {
			if !regexp.MustCompile(`^\(width (<|>=) (40|64|76)rem\)$`).MatchString(condition) {
				t.Errorf("%s: %s: the breakpoints are (width < N) and (width >= N) with 40rem, 64rem, and 76rem", name, condition)
			}
		}
	}
	if checked < 1000 {
		t.Fatalf("checked only %d declarations", checked)
	}
}

// The order of the cascade layers decides which rule applies, so that no rule
// needs !important.
func TestStylesHaveNoImportant(t *testing.T) {
	t.Parallel()
	for name, css := range ownStyleSheets(t) {
		if strings.Contains(css, "!important") {
			t.Errorf("%s: use a later layer instead of !important", name)
		}
	}
}

func TestOffScale(t *testing.T) {
	t.Parallel()
	for declaration, want := range map[string]int{
		"margin: 0 auto var(--space-3)": 0, "margin: calc(-1 * var(--space-2))": 0, "padding: 3px": 1, "gap: 0.5rem 1rem": 2,
		"margin: var(--font-s)": 1, "font: 600 0.7rem/1.4 var(--mono)": 1, "font: 600 var(--font-xs)/1.4 var(--mono)": 0,
		"font-size: 0.9rem": 1, "border-radius: 6px": 1, "border-radius: var(--radius-m) 0": 0, "width: 3rem": 0,
		"padding: calc(1px + var(--space-1))": 1,
	} {
		property, value, _ := strings.Cut(declaration, ": ")
		if got := offScale(property, value); len(got) != want {
			t.Errorf("%s: got %q, want %d values", declaration, got, want)
		}
	}
}
