package plans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// The JSON form of a document: what PUT …/draft takes and GET shows, what the
// editor edits as text, and what stores keep. Nothing in it is null or
// read-only.

type jsonDocument struct {
	Name        string       `json:"name"`
	Description string       `json:"description"`
	Policies    []jsonPolicy `json:"policies"`
}

type jsonPolicy struct {
	Slug        string                  `json:"slug"`
	Description string                  `json:"description"`
	Match       jsonMatch               `json:"match"`
	CountBy     []string                `json:"count_by"`
	Missing     enforcement.Missing     `json:"missing"`
	Replaces    []string                `json:"replaces"`
	Mode        enforcement.PolicyMode  `json:"mode"`
	OnFailure   enforcement.OnFailure   `json:"on_failure"`
	Consistency enforcement.Consistency `json:"consistency"`
	Limits      []jsonLimit             `json:"limits"`
}

type jsonMatch struct {
	Methods    []string          `json:"methods"`
	Path       string            `json:"path"`
	Attributes map[string]string `json:"attributes"`
}

type jsonLimit struct {
	Name      string `json:"name"`
	Algorithm string `json:"algorithm"`
	Quota     int64  `json:"quota"`
	Window    string `json:"window"`
	Burst     int64  `json:"burst,omitempty"`
	Anchor    string `json:"anchor,omitempty"`
}

// EncodeDocument gives the JSON form of a document, normalised, with every
// default written out; only a bucket's burst that is the quota is left out.
func EncodeDocument(d Document) ([]byte, error) {
	d = Normalise(d)
	out := jsonDocument{Name: d.Name, Description: d.Description, Policies: make([]jsonPolicy, len(d.Policies))}
	for i, p := range d.Policies {
		out.Policies[i] = policyJSON(p)
	}
	text, err := marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode plan document: %w", err)
	}
	return text, nil
}

// policyJSON is the form of a normalised policy.
func policyJSON(p Policy) jsonPolicy {
	out := jsonPolicy{
		Slug: p.Slug, Description: p.Description, Match: jsonMatch(p.Match), CountBy: p.CountBy, Missing: p.Missing,
		Replaces: p.Replaces, Mode: p.Mode, OnFailure: p.OnFailure, Consistency: p.Consistency,
		Limits: make([]jsonLimit, len(p.Limits)),
	}
	for i, l := range p.Limits {
		out.Limits[i] = limitJSON(l)
	}
	return out
}

func limitJSON(l enforcement.Limit) jsonLimit {
	out := jsonLimit{Name: l.Name, Algorithm: l.Algorithm.String(), Quota: l.Quota, Window: enforcement.FormatWindow(l.Window)}
	if l.Algorithm.Bucket() {
		out.Burst = l.Burst
	}
	if l.Algorithm.Windowed() {
		out.Anchor = l.Anchor.String()
	}
	return out
}

// marshal is json.Marshal that leaves <, > and & as they are.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}

// DecodeDocument reads the JSON form of a document and normalises it. It is
// strict: what is not exactly one document, an unknown, duplicate or missing
// member, null, or a wrong type is Malformed. Values that no Document can hold,
// like an unknown algorithm, are Invalid, together with all that Validate finds;
// values that it can hold are left to Validate.
func DecodeDocument(data []byte) (Document, error) {
	r := reader{}
	r.Reset(string(data), strictjson.MaxDepth)
	d := r.document()
	if err := r.End(); err != nil {
		return Document{}, err
	}
	d = Normalise(d)
	if len(r.faults) == 0 {
		return d, nil
	}
	var rest problem.Fields
	faults(&rest, d)
	for _, fault := range rest {
		if !slices.ContainsFunc(r.faults, func(f problem.Field) bool { return f.Pointer == fault.Pointer }) {
			r.faults = append(r.faults, fault)
		}
	}
	return Document{}, r.faults.Err()
}

// A reader decodes, and notes the values that no Document can hold.
type reader struct {
	strictjson.Decoder
	faults problem.Fields
}

func (r *reader) fault(format string, args ...any) { r.faults.Add(r.Pointer(), format, args...) }

func (r *reader) document() (d Document) {
	at, name := r.Pointer(), false
	for member := range r.Members() {
		switch member {
		case "name":
			d.Name, name = r.Text(), true
		case "description":
			d.Description = r.Text()
		case "policies":
			for range r.Elements() {
				d.Policies = append(d.Policies, r.policy())
			}
		default:
			r.Unknown()
		}
	}
	r.require(at, "name", name)
	return d
}

func (r *reader) policy() (p Policy) {
	at, slug, limits := r.Pointer(), false, false
	for member := range r.Members() {
		switch member {
		case "slug":
			p.Slug, slug = r.Text(), true
		case "description":
			p.Description = r.Text()
		case "match":
			p.Match = r.match()
		case "count_by":
			p.CountBy = r.texts()
		case "missing":
			p.Missing = enforcement.Missing(r.word())
		case "replaces":
			p.Replaces = r.texts()
		case "mode":
			p.Mode = enforcement.PolicyMode(r.word())
		case "on_failure":
			p.OnFailure = enforcement.OnFailure(r.word())
		case "consistency":
			p.Consistency = enforcement.Consistency(r.word())
		case "limits":
			limits = true
			for range r.Elements() {
				p.Limits = append(p.Limits, r.limit())
			}
		default:
			r.Unknown()
		}
	}
	r.require(at, "slug", slug)
	r.require(at, "limits", limits)
	return p
}

func (r *reader) match() (m Match) {
	for member := range r.Members() {
		switch member {
		case "methods":
			m.Methods = r.texts()
		case "path":
			m.Path = r.Text()
		case "attributes":
			m.Attributes = map[string]string{}
			for name := range r.Members() {
				m.Attributes[name] = r.Text()
			}
		default:
			r.Unknown()
		}
	}
	return m
}

func (r *reader) limit() (l enforcement.Limit) {
	at := r.Pointer()
	var algorithm, quota, window, burst, anchor bool
	for member := range r.Members() {
		switch member {
		case "name":
			l.Name = r.word()
		case "algorithm":
			algorithm = true
			name := r.Text()
			var known bool
			if l.Algorithm, known = enforcement.ParseAlgorithm(name); !known {
				r.fault("%s", algorithmFault(name))
			}
		case "quota":
			l.Quota, quota = r.Int(math.MinInt64, math.MaxInt64), true
		case "window":
			window = true
			var err error
			if l.Window, err = enforcement.ParseWindow(r.Text()); err != nil {
				r.fault("%v", err)
			}
		case "burst":
			burst = true
			if l.Burst = r.Int(math.MinInt64, math.MaxInt64); l.Burst == 0 {
				r.fault("%s", burstRange) // as a value it would mean the default
			}
		case "anchor":
			anchor = true
			var known bool
			if l.Anchor, known = enforcement.ParseAnchor(r.Text()); !known {
				r.fault("%s", anchorUnknown)
			}
		default:
			r.Unknown()
		}
	}
	r.require(at, "algorithm", algorithm)
	r.require(at, "quota", quota)
	r.require(at, "window", window)
	if burst && l.Burst != 0 && l.Algorithm != 0 && !l.Algorithm.Bucket() {
		r.faults.Add(at+"/burst", "%s", burstMisplaced)
	}
	if anchor && l.Algorithm != 0 && !l.Algorithm.Windowed() {
		r.faults.Add(at+"/anchor", "%s", anchorMisplaced)
	}
	return l
}

// word reads a text whose empty form would mean the default, which is said by
// leaving the member out.
func (r *reader) word() string {
	s := r.Text()
	if s == "" && r.Err() == nil {
		r.fault("must not be empty; leave it out for the default")
	}
	return s
}

func (r *reader) texts() []string {
	out := []string{}
	for range r.Elements() {
		out = append(out, r.Text())
	}
	return out
}

// require refuses an object at a place that lacks a member.
func (r *reader) require(at, member string, there bool) {
	if !there {
		r.FailAt(at+"/"+member, "is required")
	}
}
