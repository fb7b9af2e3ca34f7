package snapshot

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

var (
	slugForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)
	nameForm = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)
)

// compilePlan judges a published version and compiles it. What plans.Service
// has refused never comes here, but rows may have been written past it, so
// every number is asked again whether the arithmetic is exact on it, and no two
// limits may share a counter. A panic below is an error like any other: one bad
// row must not take the node down.
func compilePlan(row *PublishedPlan) (compiled *enforcement.Plan, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, fmt.Errorf("compiling panicked: %v", r)
		}
	}()
	switch {
	case row.Broken != "":
		return nil, fmt.Errorf("version %d cannot be read: %s", row.Version, row.Broken)
	case !slugForm.MatchString(row.Slug):
		return nil, fmt.Errorf("slug %q is not a slug", row.Slug)
	case row.Version < 1:
		return nil, fmt.Errorf("version %d is not a version", row.Version)
	}
	cells := make(map[uint32]bool, len(row.Limits))
	specs := make([]enforcement.RuleSpec, len(row.Document.Policies))
	for i := range row.Document.Policies {
		p := &row.Document.Policies[i]
		if err := checkPolicy(p, row.Document.Policies[:i]); err != nil {
			return nil, fmt.Errorf("policy %q: %w", p.Slug, err)
		}
		spec := enforcement.RuleSpec{
			Policy:     p.Slug,
			Methods:    p.Match.Methods,
			Path:       p.Match.Path,
			Attributes: p.Match.Attributes,
			CountBy:    p.CountBy,
			Missing:    p.Missing,
			Replaces:   p.Replaces,
			Mode:       p.Mode,
			OnFailure:  p.OnFailure,

			Consistency: p.Consistency,
		}
		for _, l := range p.Limits {
			compiled, err := compileLimit(p, l, row.Limits)
			if err != nil {
				return nil, fmt.Errorf("policy %q limit %q: %w", p.Slug, l.Name, err)
			}
			if cells[compiled.Cell] {
				return nil, fmt.Errorf("policy %q limit %q: shares cell %d with another limit", p.Slug, l.Name, compiled.Cell)
			}
			cells[compiled.Cell] = true
			spec.Limits = append(spec.Limits, compiled)
		}
		specs[i] = spec
	}
	return enforcement.CompilePlan(row.Slug, row.Version, specs)
}

// checkPolicy judges the words of a policy; a blank one is its default.
func checkPolicy(p *plans.Policy, before []plans.Policy) error {
	if !slugForm.MatchString(p.Slug) {
		return fmt.Errorf("the slug is not a slug")
	}
	for i := range before {
		if before[i].Slug == p.Slug {
			return fmt.Errorf("the slug occurs twice")
		}
	}
	switch p.Mode {
	case "", enforcement.PolicyEnforce, enforcement.PolicyShadow, enforcement.PolicyOff:
	default:
		return fmt.Errorf("unknown mode %q", p.Mode)
	}
	switch p.Missing {
	case "", enforcement.MissingShared, enforcement.MissingSkip, enforcement.MissingDeny:
	default:
		return fmt.Errorf("unknown missing %q", p.Missing)
	}
	switch p.OnFailure {
	case "", enforcement.OnFailureLocal, enforcement.OnFailureOpen, enforcement.OnFailureClosed:
	default:
		return fmt.Errorf("unknown on_failure %q", p.OnFailure)
	}
	switch p.Consistency {
	case "", enforcement.Exact, enforcement.Leased:
	default:
		return fmt.Errorf("unknown consistency %q", p.Consistency)
	}
	for i, by := range p.CountBy {
		if by == "" || slices.Contains(p.CountBy[:i], by) {
			return fmt.Errorf("count_by %q is empty or occurs twice", by)
		}
	}
	for i, l := range p.Limits {
		if slices.ContainsFunc(p.Limits[:i], func(o enforcement.Limit) bool { return o.Name == l.Name }) {
			return fmt.Errorf("limit %q occurs twice", l.Name)
		}
	}
	return nil
}

// compileLimit finds the cell and the numbers in force of a limit.
func compileLimit(p *plans.Policy, l enforcement.Limit, published []plans.Published) (enforcement.RuleLimit, error) {
	none := enforcement.RuleLimit{}
	if err := checkLimit(l); err != nil {
		return none, err
	}
	i := slices.IndexFunc(published, func(c plans.Published) bool {
		return c.Cell.Policy == p.Slug && c.Cell.Limit == l.Name && c.Cell.Algorithm == l.Algorithm &&
			c.Cell.Anchor == l.Anchor && slices.Equal(c.Cell.CountBy, p.CountBy)
	})
	if i < 0 {
		return none, fmt.Errorf("no cell was allocated for it")
	}
	c := &published[i]
	switch {
	case c.Cell.Number == 0:
		return none, fmt.Errorf("cell 0 is not a cell")
	case c.Rev < 1:
		return none, fmt.Errorf("revision %d is not a revision", c.Rev)
	case c.Limit.Numbers() != l.Numbers():
		return none, fmt.Errorf("its numbers are not those in force")
	case len(c.Formers) > plans.MaxFormers:
		return none, fmt.Errorf("%d former numbers, at most %d are kept", len(c.Formers), plans.MaxFormers)
	}
	meter := l.Compile(c.Rev)
	var last int64
	for _, f := range c.Formers {
		if err := checkFormer(f, l.Algorithm, last, c.Rev); err != nil {
			return none, err
		}
		last = f.Rev
	}
	meter.Formers = c.Formers
	name := p.Slug
	if len(p.Limits) > 1 {
		name += "." + l.Name
	}
	return enforcement.RuleLimit{Limit: l, Cell: c.Cell.Number, Meter: meter, HeaderName: name}, nil
}

// checkLimit holds a limit to the bounds within which the arithmetic is exact.
func checkLimit(l enforcement.Limit) error {
	_, known := enforcement.ParseAlgorithm(l.Algorithm.String())
	switch {
	case !nameForm.MatchString(l.Name):
		return fmt.Errorf("the name is not a limit's name")
	case !known:
		return fmt.Errorf("unknown algorithm")
	case l.Quota < 0 || l.Quota > enforcement.MaxQuota:
		return fmt.Errorf("quota %d is not within 0 and %d", l.Quota, int64(enforcement.MaxQuota))
	case l.Window < enforcement.MinWindow || l.Window > enforcement.MaxWindow || l.Window%time.Millisecond != 0:
		return fmt.Errorf("window %s is not whole milliseconds within %s and %s", l.Window, enforcement.MinWindow, enforcement.MaxWindow)
	case l.Burst < 0 || l.Burst > enforcement.MaxQuota || l.Burst != 0 && !l.Algorithm.Bucket():
		return fmt.Errorf("burst %d is not allowed", l.Burst)
	case l.Algorithm == enforcement.SlidingWindowLog && l.Quota > enforcement.MaxLog:
		return fmt.Errorf("a log holds at most %d, not %d", enforcement.MaxLog, l.Quota)
	case l.Anchor > enforcement.Clock || l.Anchor != enforcement.FirstHit && !l.Algorithm.Windowed():
		return fmt.Errorf("the anchor is not allowed")
	}
	return nil
}

// checkFormer holds former numbers to what Meter.Settle may divide by.
func checkFormer(f enforcement.Former, a enforcement.Algorithm, after, before int64) error {
	switch {
	case f.Rev <= after || f.Rev >= before:
		return fmt.Errorf("former revision %d is not between %d and %d", f.Rev, after, before)
	case f.Until < 0:
		return fmt.Errorf("former numbers until %d", f.Until)
	case f.Quota < 0 || f.Quota > enforcement.MaxQuota || f.Window < enforcement.MinWindow.Microseconds() || f.Window > enforcement.MaxWindow.Microseconds():
		return fmt.Errorf("former quota %d or window %d is out of range", f.Quota, f.Window)
	case a.Bucket() && (f.Capacity < 0 || f.Capacity > enforcement.MaxQuota || f.P < 0 || f.P > f.Quota || f.Q < 1 || f.Q > f.Window):
		return fmt.Errorf("former capacity %d or rate %d/%d is out of range", f.Capacity, f.P, f.Q)
	}
	return nil
}
