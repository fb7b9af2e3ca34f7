package store

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/plans"
)

// Databases of the first release contain plan documents in form 1: with a flat match and with
// windows in milliseconds. This file reads them. Form 1 is no longer written, so it gets no new
// fields.

type policyForm1 struct {
	Slug        string                  `json:"slug"`
	Description string                  `json:"description"`
	Methods     []string                `json:"methods"`
	Path        string                  `json:"path"`
	Attributes  map[string]string       `json:"attributes"`
	CountBy     []string                `json:"count_by"`
	Missing     enforcement.Missing     `json:"missing"`
	Replaces    []string                `json:"replaces"`
	Mode        enforcement.PolicyMode  `json:"mode"`
	OnFailure   enforcement.OnFailure   `json:"on_failure"`
	Consistency enforcement.Consistency `json:"consistency"`
	Limits      []limitForm1            `json:"limits"`
}

type limitForm1 struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Quota     int64  `json:"quota"`
	WindowMS  int64  `json:"window_ms"`
	Burst     int64  `json:"burst"`
	Anchor    string `json:"anchor"`
}

func readForm1(in storedDocument) (plans.Document, error) {
	c := plans.Content{Name: in.Name, Description: in.Description}
	for _, p := range in.Policies {
		policy := plans.Policy{
			Slug: p.Slug, Description: p.Description,
			Match:   plans.Match{Methods: p.Methods, Path: p.Path, Attributes: p.Attributes},
			CountBy: p.CountBy, Missing: p.Missing, Replaces: p.Replaces, Mode: p.Mode,
			OnFailure: p.OnFailure, Consistency: p.Consistency,
		}
		for _, l := range p.Limits {
			limit, err := l.limit()
			if err != nil {
				return plans.Document{}, fmt.Errorf("policy %s: limit %s: %w", p.Slug, l.Name, err)
			}
			policy.Limits = append(policy.Limits, limit)
		}
		c.Policies = append(c.Policies, policy)
	}
	return plans.New(c), nil
}

func (in limitForm1) limit() (enforcement.Limit, error) {
	l := enforcement.Limit{Name: in.Name, Quota: in.Quota, Window: time.Duration(in.WindowMS) * time.Millisecond, Burst: in.Burst}
	if l.Window.Milliseconds() != in.WindowMS {
		return l, fmt.Errorf("the window of %d ms is out of range", in.WindowMS)
	}
	var known bool
	if l.Algorithm, known = enforcement.ParseAlgorithm(in.Algorithm); !known && in.Algorithm != "" {
		return l, fmt.Errorf("unknown algorithm %q", in.Algorithm)
	}
	if l.Anchor, known = enforcement.ParseAnchor(in.Anchor); !known {
		return l, fmt.Errorf("unknown anchor %q", in.Anchor)
	}
	return l, nil
}
