package plans

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// MaxBytes is the maximum size of a document in a request: the number of bytes of its JSON.
const MaxBytes = 1 << 20

// Maximum numbers and lengths in a document.
const (
	MaxName        = 200 // characters
	MaxDescription = enforcement.MaxPolicyDescription
	MaxPolicies    = enforcement.MaxRules
	MaxLimits      = enforcement.MaxPolicyLimits
	MaxMethods     = enforcement.MaxPolicyMethods
	MaxCountBy     = enforcement.MaxCountBy
	MaxAttributes  = enforcement.MaxAttributes
)

// Policy and Match are types of package enforcement. A plan adds no fields to them.
type (
	Policy = enforcement.Policy
	Match  = enforcement.Match
)

// Content holds the fields of a plan document as a person enters them. A field that has a default
// may have its zero value.
type Content struct {
	Name        string   `json:"name"`        // 1 to 200 characters
	Description string   `json:"description"` // up to 2,000 characters
	Policies    []Policy `json:"policies"`
}

// A Document is a draft or a published version in canonical form: it contains every default, and
// equal values have equal forms. New and Parse create Documents. A Document is immutable. It may
// contain invalid values; Validate reports them.
type Document struct{ c Content }

// New returns a Document with a copy of the content, in canonical form.
func New(c Content) Document {
	c.Description = strings.ReplaceAll(c.Description, "\r\n", "\n")
	policies := make([]Policy, len(c.Policies))
	for i, p := range c.Policies {
		policies[i] = p.Canonical()
	}
	c.Policies = policies
	return Document{c}
}

// Name returns the name of the plan.
func (d Document) Name() string { return d.c.Name }

// Description returns the description of the plan.
func (d Document) Description() string { return d.c.Description }

// Policies returns a copy of the policies.
func (d Document) Policies() []Policy { return New(d.c).c.Policies }

// Content returns a copy of the content, which the caller may edit.
func (d Document) Content() Content { return New(d.c).c }

// Equal reports whether two documents have the same content.
func (d Document) Equal(o Document) bool { return reflect.DeepEqual(New(d.c), New(o.c)) }

// MarshalJSON returns the JSON form of the document, which the API, the editor, the audit log
// and the database use. It contains all defaults, except a burst that equals the quota.
// MarshalJSON returns an error if a value has no JSON form.
func (d Document) MarshalJSON() ([]byte, error) {
	if d.c.Policies == nil {
		d = New(d.c)
	}
	text, err := enforcement.MarshalJSON(d.c)
	if err != nil {
		return nil, fmt.Errorf("encode plan document: %w", err)
	}
	return text, nil
}

// Parse parses the JSON form of a document.
//
// It returns a problem.Malformed if the text does not have the form of a document: a member is
// unknown, duplicate, missing or null, or has a wrong type. It returns a problem.Invalid if the
// text has a value that a Document cannot contain, such as an unknown algorithm. The problem
// then also contains the faults that Validate finds. Parse accepts all other invalid values.
func Parse(data []byte) (Document, error) {
	var faults problem.Fields
	var d strictjson.Decoder
	d.Reset(string(data), strictjson.MaxDepth)
	c := readContent(&d, func(pointer, message string) { faults.Add(pointer, "%s", message) })
	if err := d.End(); err != nil {
		return Document{}, err
	}
	document := New(c)
	if len(faults) == 0 {
		return document, nil
	}
	for _, fault := range document.savingFaults() {
		if !slices.ContainsFunc(faults, func(f problem.Field) bool { return f.Pointer == fault.Pointer }) {
			faults = append(faults, fault)
		}
	}
	return Document{}, faults.Err()
}

func readContent(d *strictjson.Decoder, fault enforcement.Fault) (c Content) {
	name := false
	for member := range d.Members() {
		switch member {
		case "name":
			c.Name, name = d.Text(), true
		case "description":
			c.Description = d.Text()
		case "policies":
			for range d.Elements() {
				c.Policies = append(c.Policies, enforcement.ReadPolicy(d, fault))
			}
		default:
			d.Unknown()
		}
	}
	if !name {
		d.FailAt("/name", "is required")
	}
	return c
}

// Validate returns a problem.Invalid with JSON pointers to all faults of the document, or nil.
// Service.Inspect also checks the additional conditions for a publication.
func (d Document) Validate() error { return d.savingFaults().Err() }

// savingFaults returns the faults that prevent a document from being saved: the result of faults,
// fields without an effect, and limits that could never allow a request. The last two kinds prevent
// only saving. A document that was stored with such a fault stays valid, so that it stays in force
// and can be published.
func (d Document) savingFaults() problem.Fields {
	f := d.faults()
	for i := range d.c.Policies {
		p, at := &d.c.Policies[i], "/policies/"+strconv.Itoa(i)
		if p.UselessDelay() {
			f.Add(at+"/delay_ms", "has no effect in mode %s: leave it out, or set the mode to delay", p.Mode)
		}
		for j := range p.Limits {
			l := &p.Limits[j]
			if most := l.Capacity(); p.Mode.Denies() && p.CostFrom == "" && p.Cost != nil && *p.Cost > most && l.Quota > 0 {
				f.Add(at+"/cost", "must be at most %d: the limit %s can never allow more at once", most, l.Name)
			}
			if wait := time.Duration(l.LongestDelay()) * time.Microsecond; wait > maxDelay {
				f.Add(fmt.Sprintf("%s/limits/%d/burst", at, j),
					"a request could wait for %.0f days: must be so small that none waits longer than 366", wait.Hours()/24)
			}
		}
	}
	return f
}

// maxDelay is the longest time that a leaky bucket may make a request wait.
const maxDelay = 366 * 24 * time.Hour

func (d Document) faults() problem.Fields {
	var f problem.Fields
	f.Line("/name", d.c.Name, 1, MaxName)
	f.Text("/description", d.c.Description, MaxDescription)
	f.AddAll("/policies", enforcement.ValidatePolicies(d.c.Policies))
	return f
}
