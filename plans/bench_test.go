package plans

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/enforcement"
)

// BenchmarkFullPlan measures the validation and the diff of a plan with the maximum number
// of policies.
func BenchmarkFullPlan(b *testing.B) {
	many := func(change func(i int, p *Policy)) Content {
		d := Content{Name: "Full"}
		for i := range MaxPolicies {
			p := Policy{
				Slug: fmt.Sprintf("p%d", i), Match: Match{Methods: []string{"GET"}, Path: fmt.Sprintf("/v1/%d/{id}", i)}, CountBy: []string{"user"},
				Limits: []enforcement.Limit{{Algorithm: enforcement.TokenBucket, Quota: 10, Window: 60_000_000_000}},
			}
			change(i, &p)
			d.Policies = append(d.Policies, p)
		}
		return canonical(d)
	}
	for _, c := range []struct {
		name string
		d    Content
	}{
		{"routes", many(func(int, *Policy) {})},
		{"methods", many(func(i int, p *Policy) {
			p.Match.Methods = nil
			for k := range MaxMethods {
				p.Match.Methods = append(p.Match.Methods, fmt.Sprintf("M%d-%d", i, k))
			}
		})},
		{"replaces", many(func(i int, p *Policy) { // 150 of the policies before it
			p.Match.Path = "*"
			for k := max(0, i-150); k < i; k++ {
				p.Replaces = append(p.Replaces, fmt.Sprintf("p%d", k))
			}
		})},
		// Each contradicts only its neighbor: 2 of every 5 in a ring.
		{"adversarial", many(func(i int, p *Policy) {
			at := func(n int) string { return fmt.Sprintf("g%d-e%d", i/5, n%5) }
			p.Match = Match{Attributes: map[string]string{at(i): "x", at(i + 1): "y"}}
		})},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := NewService(nil, Config{})
			text, err := New(c.d).MarshalJSON()
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s.Inspect(New(c.d))
			}
			b.ReportMetric(float64(len(text))/1e6, "MB")
		})
	}
	from, to := many(func(int, *Policy) {}), many(func(_ int, p *Policy) { p.Limits[0].Quota = 11 })
	b.Run("compare", func(b *testing.B) {
		for b.Loop() {
			if d, err := Compare(New(from), New(to)); err != nil || len(d.Changed) != MaxPolicies || len(Recounts(New(from), New(to))) != MaxPolicies {
				b.Fatal(len(d.Changed), err)
			}
		}
	})
}
