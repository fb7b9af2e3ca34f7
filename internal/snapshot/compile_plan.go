package snapshot

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

var (
	slugForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)
	nameForm = regexp.MustCompile(`^[a-z0-9-]{1,32}$`) // of a limit
)

// compilePlan validates and compiles the published version of a plan. plans.Service has validated
// the version, but another program may have changed its row since then. If the compilation panics,
// compilePlan returns an error, so that one invalid row does not stop the node.
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
	policies := row.Document.Policies()
	if faults := enforcement.ValidatePolicies(policies); len(faults) > 0 {
		return nil, fmt.Errorf("%s %s", faults[0].Pointer, faults[0].Message)
	}
	specs := make([]enforcement.RuleSpec, len(policies))
	for i := range policies {
		p := &policies[i]
		limits := make([]enforcement.RuleLimit, len(p.Limits))
		for k, l := range p.Limits {
			if limits[k], err = compileLimit(p, l, row.Limits); err != nil {
				return nil, fmt.Errorf("policy %q limit %q: %w", p.Slug, l.Name, err)
			}
		}
		specs[i] = p.RuleSpec(limits)
	}
	return enforcement.CompilePlan(row.Slug, row.Version, specs)
}

// compileLimit compiles a limit of a policy. It takes the cell and the former values of the limit
// from published. The cell identifies the counters of the limit.
func compileLimit(p *plans.Policy, l enforcement.Limit, published []plans.Published) (enforcement.RuleLimit, error) {
	none := enforcement.RuleLimit{}
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
	return enforcement.RuleLimit{Limit: l, Cell: c.Cell.Number, Meter: meter}, nil
}

// checkFormer returns an error if a former value of a limit is out of range. The arithmetic of the
// limits is exact only within these ranges. The revision of f must be between after and before.
func checkFormer(f enforcement.Former, a enforcement.Algorithm, after, before int64) error {
	switch {
	case f.Rev <= after || f.Rev >= before:
		return fmt.Errorf("former revision %d is not between %d and %d", f.Rev, after, before)
	case f.CarryOver > enforcement.CarryAdditive:
		return fmt.Errorf("former carry-over %d is unknown", f.CarryOver)
	case f.Until < 0:
		return fmt.Errorf("former numbers until %d", f.Until)
	case f.Quota < 0 || f.Quota > enforcement.MaxQuota || f.Window < enforcement.MinWindow.Microseconds() ||
		f.Window > enforcement.Year.Longest().Microseconds():
		return fmt.Errorf("former quota %d or window %d is out of range", f.Quota, f.Window)
	case a.Bucket() && (f.Capacity < 0 || f.Capacity > enforcement.MaxQuota || f.P < 0 || f.P > f.Quota || f.Q < 1 || f.Q > f.Window):
		return fmt.Errorf("former capacity %d or rate %d/%d is out of range", f.Capacity, f.P, f.Q)
	}
	return nil
}
