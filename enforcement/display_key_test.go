package enforcement_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforcement"
)

func TestKeyOf(t *testing.T) {
	t.Parallel()
	s := subject(t,
		enforcement.RuleSpec{Policy: "grouped", CountBy: []string{"user", "ip/64", "app"}},
		enforcement.RuleSpec{Policy: "whole", CountBy: []string{"ip"}},
		enforcement.RuleSpec{Policy: "tenant"})
	grouped, _ := s.Plan.Rule("grouped")
	whole, _ := s.Plan.Rule("whole")
	tenant, _ := s.Plan.Rule("tenant")
	if _, ok := s.Plan.Rule("gone"); ok {
		t.Error("a policy that is not there is found")
	}
	part := func(name, value string) enforcement.KeyPart {
		return enforcement.KeyPart{Name: name, Value: value, Missing: value == ""}
	}
	for _, c := range []struct {
		rule  *enforcement.Rule
		check enforcement.Check
		want  []enforcement.KeyPart
	}{
		{grouped, asked("", "", "app", "web", "user", "ann", "ip", "2001:db8:1:2:3::4"), []enforcement.KeyPart{part("user", "ann"), part("ip/64", "2001:db8:1:2::/64"), part("app", "web")}},
		{grouped, asked("", "", "user", "", "ip", "192.0.2.1"), []enforcement.KeyPart{part("user", ""), part("ip/64", "192.0.2.1"), part("app", "")}},
		{whole, asked("", "", "ip", "2001:db8::1"), []enforcement.KeyPart{part("ip", "2001:db8::1")}},
		{tenant, asked("", "", "ip", "2001:db8::1"), nil},
	} {
		key := c.rule.KeyOf(&c.check, nil)
		if diff := cmp.Diff(c.want, key); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.rule.Policy, diff)
		}
		// A key in the form of attributes belongs to the same counter as the key that is shown.
		var written, shown enforcement.Check
		written.Attributes = c.check.Attributes
		for i, p := range key {
			if name := map[string]string{"ip/64": "ip"}[p.Name]; name != "" {
				key[i].Name = name
			}
			if !p.Missing {
				shown.Attributes = append(shown.Attributes, enforcement.Attribute{Name: key[i].Name, Value: p.Value})
			}
		}
		want := c.rule.PartitionOf(&c.check)
		if c.rule.PartitionOf(&written) != want || c.rule.PartitionOf(&shown) != want {
			t.Errorf("%s: the key of %v has another partition when it is written as %v", c.rule.Policy, c.check.Attributes, shown.Attributes)
		}
		d := decide(enforcement.NewEngine(newCounters(), enforcement.Config{}), subject(t, enforcement.RuleSpec{Policy: "p", CountBy: c.rule.CountBy, Limits: []enforcement.RuleLimit{window(1, 1)}}), c.check)
		if d.Limits[0].Partition != want {
			t.Errorf("%s: a decision tells of another partition", c.rule.Policy)
		}
	}
}
