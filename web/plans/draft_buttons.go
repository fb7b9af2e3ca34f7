package plans

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/plans"
)

// do changes the form for the button that was pressed. what is the value of the button:
// "add-policy", "undo-delete", or "policies.N." followed by "duplicate", "delete", "up",
// "down", "add-limit", "add-attribute", "add-count-by" or "limits.N.delete". It returns the
// field that gets the focus, and the index of the policy to open, or -1. ok is false if no
// button has the value what.
func (f *draftForm) do(what string) (next string, open int, ok bool) {
	if what == "add-policy" {
		f.policies = append(f.policies, newPolicy())
		open = len(f.policies) - 1
		return "policies." + strconv.Itoa(open) + ".slug", open, len(f.policies) <= plans.MaxPolicies
	}
	if what == "undo-delete" {
		return f.undo()
	}
	parts := strings.Split(what, ".")
	if len(parts) < 3 || parts[0] != "policies" || !rowNumber(parts[1], len(f.policies)) {
		return "", 0, false
	}
	i, _ := strconv.Atoi(parts[1])
	p, in := &f.policies[i], "policies."+parts[1]
	if len(parts) == 5 && parts[2] == "limits" && parts[4] == "delete" && rowNumber(parts[3], len(p.limits)) {
		k, _ := strconv.Atoi(parts[3])
		p.limits = slices.Delete(p.limits, k, k+1)
		return in + ".limits", i, true
	}
	if len(parts) != 3 {
		return "", 0, false
	}
	switch parts[2] {
	case "duplicate":
		f.policies = slices.Insert(f.policies, i+1, f.copyOf(*p))
		return "policies." + strconv.Itoa(i+1) + ".slug", i + 1, len(f.policies) <= plans.MaxPolicies
	case "delete":
		f.policies = slices.Delete(f.policies, i, i+1)
		return "policies", -1, true
	case "up":
		return f.swap(i, i-1)
	case "down":
		return f.swap(i, i+1)
	case "add-limit":
		p.limits = append(p.limits, newLimit())
		return in + ".limits." + strconv.Itoa(len(p.limits)-1) + ".quota", i, len(p.limits) <= maxRows
	case "add-attribute":
		p.attributes = append(p.attributes, attributeForm{})
		return in + ".attributes." + strconv.Itoa(len(p.attributes)-1) + ".name", i, len(p.attributes) <= maxRows
	case "add-count-by":
		p.countBy = append(p.countBy, "")
		return in + ".count_by." + strconv.Itoa(len(p.countBy)-1), i, len(p.countBy) <= maxRows
	}
	return "", 0, false
}

// undo restores the policy that was deleted last, at its former position.
func (f *draftForm) undo() (next string, open int, ok bool) {
	rows, back := rowsOf(f.removed, "policies"), readDraft(f.removed)
	if len(rows) != 1 || len(f.policies) >= plans.MaxPolicies {
		return "", 0, false
	}
	at, _ := strconv.Atoi(strings.TrimPrefix(rows[0], "policies."))
	at = min(at, len(f.policies))
	f.policies, f.removed = slices.Insert(f.policies, at, back.policies[0]), nil
	return "policies." + strconv.Itoa(at) + ".slug", at, true
}

func (f *draftForm) swap(i, to int) (next string, open int, ok bool) {
	if to < 0 || to >= len(f.policies) {
		return "", 0, false
	}
	f.policies[i], f.policies[to] = f.policies[to], f.policies[i]
	return "policies." + strconv.Itoa(to), to, true
}

// copyOf returns a copy of a policy with a new slug.
func (f *draftForm) copyOf(p policyForm) policyForm {
	out := policyForm{
		fields: maps.Clone(p.fields), methods: slices.Clone(p.methods), countBy: slices.Clone(p.countBy), replaces: slices.Clone(p.replaces),
		attributes: slices.Clone(p.attributes), limits: slices.Clone(p.limits),
	}
	slug := p.fields["slug"]
	stem := strings.TrimSuffix(slug[:min(len(slug), problem.MaxSlug-8)], "-")
	for n := 1; ; n++ {
		slug = stem + "-copy"
		if n > 1 {
			slug += "-" + strconv.Itoa(n)
		}
		if !slices.ContainsFunc(f.policies, func(o policyForm) bool { return o.fields["slug"] == slug }) {
			out.fields["was"], out.fields["slug"] = "", slug
			return out
		}
	}
}
