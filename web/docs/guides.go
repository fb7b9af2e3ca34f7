package docs

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"github.com/headgate/headgate/web/views"
)

const guidesURL = "/docs/guides"

// order lists the guides that come first in the list of guides. All other guides follow,
// ordered by name.
var order = []string{"api", "algorithms", "exceptions", "preview", "dashboard", "people", "alerts", "cli", "sdks", "operations", "settings"}

// parseGuides renders the guides in the folder docs, and returns their links in order.
func parseGuides(files fs.FS) (list []views.Link, guides map[string]views.Guide, err error) {
	names, err := fs.Glob(files, "docs/*.md")
	if err != nil {
		return nil, nil, err
	}
	for i, path := range names {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(path, "docs/"), ".md")
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a, b)) })
	markdown := goldmark.New(
		goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(links(names), 100))),
	)
	guides = map[string]views.Guide{}
	for _, name := range names {
		source, err := fs.ReadFile(files, "docs/"+name+".md")
		if err != nil {
			return nil, nil, err
		}
		g, err := render(markdown, source)
		if err != nil {
			return nil, nil, fmt.Errorf("docs/%s.md: %w", name, err)
		}
		guides[name] = g
		list = append(list, views.Link{Text: g.Title, URL: guidesURL + "/" + name})
	}
	return list, guides, nil
}

func rank(name string) int {
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// render converts a guide from Markdown to HTML. It leaves out any HTML in the Markdown,
// because goldmark does so.
func render(markdown goldmark.Markdown, source []byte) (g views.Guide, err error) {
	document := markdown.Parser().Parse(text.NewReader(source))
	title, ok := document.FirstChild().(*ast.Heading)
	if !ok || title.Level != 1 {
		return g, fmt.Errorf("the first line is not a title")
	}
	g.Title = string(title.Lines().Value(source))
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, document); err != nil {
		return g, err
	}
	// Wide tables and code blocks can be scrolled. The tabindex makes them reachable with the
	// keyboard.
	g.HTML = strings.NewReplacer(
		"<table>", `<div class="scroll" tabindex="0"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`,
	).Replace(b.String())
	return g, nil
}

// links changes the links of a guide, so that they work on the server. A link to another guide
// becomes the URL of the guide's page. A link to another file of the repository becomes plain
// text, and an image becomes its description. The value of links is the list of the names of
// the guides.
type links []string

// Transform implements parser.ASTTransformer.
func (names links) Transform(document *ast.Document, _ text.Reader, _ parser.Context) {
	var found []ast.Node
	_ = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // never fails
		if kind := n.Kind(); entering && (kind == ast.KindLink || kind == ast.KindImage) {
			found = append(found, n)
		}
		return ast.WalkContinue, nil
	})
	for _, n := range found {
		if link, ok := n.(*ast.Link); ok && names.resolve(link) {
			continue
		}
		for child := n.FirstChild(); child != nil; child = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, child)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
}

// resolve sets the target of a link. It returns false if the target is neither on the server
// nor on the web.
func (names links) resolve(link *ast.Link) bool {
	target := string(link.Destination)
	if strings.HasPrefix(target, "#") || strings.HasPrefix(target, "https://") {
		return true
	}
	file, fragment, _ := strings.Cut(target, "#")
	name, markdown := strings.CutSuffix(file, ".md")
	switch {
	case target == "../openapi.yaml":
		link.Destination = []byte("/openapi.yaml")
	case strings.HasSuffix(target, ".schema.json"):
		link.Destination = []byte("/docs/" + target)
	case markdown && slices.Contains(names, name):
		link.Destination = []byte(guidesURL + "/" + name)
		if fragment != "" {
			link.Destination = append(link.Destination, "#"+fragment...)
		}
	default:
		return false
	}
	return true
}
