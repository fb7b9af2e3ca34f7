package views

import (
	_ "embed"
	"strings"
)

//go:embed icons.txt
var iconLines string

// icons has the inner SVG elements of Lucide icons, by name. The view box of an icon is 24
// by 24 (lucide-static 1.62.0, ISC license: static/vendor/LICENSES.txt).
var icons = func() map[string]string {
	byName := map[string]string{}
	for line := range strings.Lines(iconLines) {
		name, elements, _ := strings.Cut(strings.TrimSpace(line), " ")
		byName[name] = elements
	}
	return byName
}()
