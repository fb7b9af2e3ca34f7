package grafanatest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

const root = "../.."

// A set of label names.
type set map[string]bool

func setOf(names ...string) set {
	s := set{}
	for _, n := range names {
		s[n] = true
	}
	return s
}

func (s set) with(names ...string) set {
	w := maps.Clone(s)
	maps.Copy(w, setOf(names...))
	return w
}

func (s set) without(names ...string) set {
	w := maps.Clone(s)
	for _, n := range names {
		delete(w, n)
	}
	return w
}

func (s set) String() string { return strings.Join(slices.Sorted(maps.Keys(s)), ",") }

// A series has the metric name and the labels that a selector can match.
type series struct {
	labels  set
	values  map[string]set // of the labels that have fixed ones
	counter bool           // only rises, so that a rate of it means something
}

// A catalogue has every series that a scrape of a node gives.
type catalogue map[string]series

// readCatalogue parses the file that the test of package metrics writes: a line for each
// metric with its name, type, and labels, with their values where these are fixed.
func readCatalogue(text string) (catalogue, error) {
	c := catalogue{"up": {labels: setOf("job", "instance")}}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if len(fields) < 2 || len(fields) > 3 {
			return nil, fmt.Errorf("%q is not name, type and labels", line)
		}
		name, own := fields[0], series{labels: setOf("job", "instance"), values: map[string]set{}}
		if len(fields) == 3 {
			for label := range strings.SplitSeq(fields[2], ",") {
				label, values, fixed := strings.Cut(label, "=")
				own.labels[label] = true
				if fixed {
					own.values[label] = setOf(strings.Split(values, "|")...)
				}
			}
		}
		rising := own
		rising.counter = true
		switch kind := fields[1]; kind {
		case "counter":
			c[name] = rising
		case "gauge":
			c[name] = own
		case "histogram":
			c[name+"_bucket"] = series{own.labels.with("le"), own.values, true}
			c[name+"_sum"], c[name+"_count"] = rising, rising
		case "summary":
			c[name] = series{own.labels.with("quantile"), own.values, false}
			c[name+"_sum"], c[name+"_count"] = rising, rising
		default:
			return nil, fmt.Errorf("%s has the type %s", name, kind)
		}
	}
	return c, nil
}

func theCatalogue(t *testing.T) catalogue {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "internal", "metrics", "testdata", "series.txt"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := readCatalogue(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An inspection follows the labels of an expression from its selectors up, and
// notes what cannot be meant.
type inspection struct {
	catalogue catalogue
	problems  []string
}

// inspect returns the labels of the results, and the faults of the expression.
func (c catalogue) inspect(expression string) (set, []string) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return nil, []string{err.Error()}
	}
	i := &inspection{catalogue: c}
	return i.labels(e), i.problems
}

func (i *inspection) wrong(format string, args ...any) {
	i.problems = append(i.problems, fmt.Sprintf(format, args...))
}

// have notes the names that are missing in a set.
func (i *inspection) have(in set, what parser.Node, names ...string) {
	for _, n := range names {
		if !in[n] {
			i.wrong("no label %s at %s", n, what)
		}
	}
}

func (i *inspection) labels(e parser.Expr) set {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return i.selector(e).labels
	case *parser.MatrixSelector:
		return i.labels(e.VectorSelector)
	case *parser.ParenExpr:
		return i.labels(e.Expr)
	case *parser.UnaryExpr:
		return i.labels(e.Expr)
	case *parser.SubqueryExpr:
		return i.labels(e.Expr)
	case *parser.AggregateExpr:
		return i.aggregate(e)
	case *parser.BinaryExpr:
		return i.binary(e)
	case *parser.Call:
		return i.call(e)
	}
	return set{} // a number or a text
}

func (i *inspection) selector(e *parser.VectorSelector) series {
	s, there := i.catalogue[e.Name]
	if !there {
		i.wrong("no metric %q", e.Name)
		return series{labels: set{}, counter: true}
	}
	for _, m := range e.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			i.have(s.labels, e, m.Name)
			if fixed := s.values[m.Name]; m.Type == labels.MatchEqual && fixed != nil && !fixed[m.Value] {
				i.wrong("%s is never %q at %s", m.Name, m.Value, e)
			}
		}
	}
	return s
}

func (i *inspection) aggregate(e *parser.AggregateExpr) set {
	in := i.labels(e.Expr)
	i.have(in, e, e.Grouping...)
	if e.Without {
		return in.without(e.Grouping...)
	}
	return setOf(e.Grouping...)
}

func (i *inspection) binary(e *parser.BinaryExpr) set {
	left, right := i.labels(e.LHS), i.labels(e.RHS)
	if e.LHS.Type() != parser.ValueTypeVector {
		return right
	}
	if e.RHS.Type() != parser.ValueTypeVector {
		return left
	}
	match := e.VectorMatching
	if match.On {
		i.have(left, e, match.MatchingLabels...)
		i.have(right, e, match.MatchingLabels...)
		if match.Card == parser.CardOneToOne && !e.Op.IsSetOperator() {
			return setOf(match.MatchingLabels...)
		}
		return left
	}
	if l, r := left.without(match.MatchingLabels...), right.without(match.MatchingLabels...); !maps.Equal(l, r) {
		i.wrong("the sides never meet, one has the labels %s and the other %s: %s", l, r, e)
	}
	return left
}

// rates are the functions that take the fall of a value for a restart.
var rates = setOf("rate", "irate", "increase", "resets")

func (i *inspection) call(e *parser.Call) set {
	if e.Func.Name == "absent" {
		i.labels(e.Args[0])
		return setOf("job")
	}
	found := set{}
	for _, arg := range e.Args {
		if m, ok := arg.(*parser.MatrixSelector); ok && rates[e.Func.Name] && !i.catalogue[m.VectorSelector.(*parser.VectorSelector).Name].counter {
			i.wrong("%s of what is no counter: %s", e.Func.Name, e)
		}
		maps.Copy(found, i.labels(arg))
	}
	if e.Func.Name == "histogram_quantile" {
		i.have(found, e, "le")
		found = found.without("le")
	}
	return found
}
