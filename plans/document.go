package plans

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// MaxBytes is the size of the largest document in JSON, as a caller sends it.
const MaxBytes = 1 << 20

// Bounds of a document.
const (
	MaxName        = 200 // characters
	MaxDescription = enforcement.MaxPolicyDescription
	MaxPolicies    = enforcement.MaxRules
	MaxLimits      = enforcement.MaxPolicyLimits
	MaxMethods     = enforcement.MaxPolicyMethods
	MaxCountBy     = enforcement.MaxCountBy
	MaxAttributes  = enforcement.MaxAttributes
)

// Policy and Match are the types of enforcement: a plan adds nothing to them.
type (
	Policy = enforcement.Policy
	Match  = enforcement.Match
)

// Content is what a person writes in a plan document. Defaults may be left out.
type Content struct {
	Name        string   `json:"name"`        // 1 to 200 characters
	Description string   `json:"description"` // up to 2,000 characters
	Policies    []Policy `json:"policies"`
}

// A Document is the draft of a plan or a published version, in canonical form:
// every default is filled in, and each value has one spelling. New and Parse make
// Documents. A Document never changes, and may hold invalid values: see Validate.
type Document struct{ c Content }

// New returns the canonical document with this content. It copies the content.
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

// Content returns a copy of the content, for an edit.
func (d Document) Content() Content { return New(d.c).c }

// Equal reports whether two documents are the same.
func (d Document) Equal(o Document) bool { return reflect.DeepEqual(New(d.c), New(o.c)) }

// MarshalJSON returns the JSON form: of the API, the editor, the audit log and the
// database. It writes every default, except a burst that is equal to the quota. An
// error names a value that has no JSON form.
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

// Parse reads the JSON form of a document. It returns a Malformed problem for text
// that is not exactly one document: an unknown, duplicate or missing member, null,
// or a wrong type. It returns an Invalid problem for values that no Document can
// hold, such as an unknown algorithm, together with all faults that Validate
// finds. Other invalid values are no error: see Validate.
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
	for _, fault := range document.faults() {
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

// Validate returns an Invalid problem with all faults of the document, or nil. The
// pointers are of the JSON form. Publishing checks more: see Service.Inspect.
func (d Document) Validate() error { return d.faults().Err() }

func (d Document) faults() problem.Fields {
	var f problem.Fields
	f.Line("/name", d.c.Name, 1, MaxName)
	f.Text("/description", d.c.Description, MaxDescription)
	f.AddAll("/policies", enforcement.ValidatePolicies(d.c.Policies))
	return f
}
