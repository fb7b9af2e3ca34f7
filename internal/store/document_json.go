package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
	"github.com/headgate/headgate/plans"
)

// form is the version number of the JSON form that writeDocument writes. In form 2, the document is
// the JSON of plans.Document. readDocument also reads form 1.
const form = 2

type storedDocument struct {
	Form     int             `json:"form"`
	Document json.RawMessage `json:"document,omitempty"`

	// Only documents of form 1 have the following members.
	Name        string        `json:"name,omitempty"`
	Description string        `json:"description,omitempty"`
	Policies    []policyForm1 `json:"policies,omitempty"`
}

// writeDocument returns the JSON text under which a document is stored. It returns an error if
// readDocument would reject this text.
func writeDocument(d plans.Document) (string, error) {
	document, err := d.MarshalJSON()
	if err != nil {
		return "", &problem.Problem{Kind: problem.Invalid, Message: "the document cannot be stored", Cause: err}
	}
	return writeJSON(storedDocument{Form: form, Document: document})
}

// readDocument decodes the output of writeDocument. It returns an error for any other text, because
// a document that is decoded only in part must not be enforced.
func readDocument(text string) (plans.Document, error) {
	var in storedDocument
	if err := readJSON(text, &in); err != nil {
		return plans.Document{}, err
	}
	switch in.Form {
	case form:
		return plans.Parse(in.Document)
	case 1:
		return readForm1(in)
	}
	return plans.Document{}, fmt.Errorf("the document has form %d, and this headgate reads forms 1 and %d", in.Form, form)
}

// A formerJSON is the JSON form of an enforcement.Former: the quota, window and burst that a limit
// had before a change.
type formerJSON struct {
	Quota    int64 `json:"quota"`
	WindowMS int64 `json:"window_ms"`
	Burst    int64 `json:"burst"`
	Rev      int64 `json:"rev"`
	UntilUS  int64 `json:"until_us"`
	// CarryOver is absent for keep.
	CarryOver string `json:"carry_over,omitempty"`
}

func writeFormers(formers []enforcement.Former) (string, error) {
	out := []formerJSON{}
	for _, f := range formers {
		j := formerJSON{Quota: f.Quota, WindowMS: f.Window / 1000, Burst: f.Burst(), Rev: f.Rev, UntilUS: f.Until}
		if f.CarryOver != enforcement.CarryKeep {
			j.CarryOver = f.CarryOver.String()
		}
		out = append(out, j)
	}
	return writeJSON(out)
}

// readFormers decodes the former values of a limit with the algorithm a.
func readFormers(text string, a enforcement.Algorithm) ([]enforcement.Former, error) {
	var in []formerJSON
	if err := readJSON(text, &in); err != nil {
		return nil, err
	}
	var out []enforcement.Former
	for _, f := range in {
		if f.Quota < 0 || f.WindowMS <= 0 || f.Burst < 0 {
			return nil, errors.New("a former number is out of range")
		}
		carry, known := enforcement.ParseCarryOver(cmp.Or(f.CarryOver, enforcement.CarryKeep.String()))
		if !known {
			return nil, fmt.Errorf("a former number has the unknown carry-over %q", f.CarryOver)
		}
		limit := enforcement.Limit{Algorithm: a, Quota: f.Quota, Window: time.Duration(f.WindowMS) * time.Millisecond, Burst: f.Burst}
		out = append(out, enforcement.Former{Numbers: limit.Numbers(), Rev: f.Rev, Until: f.UntilUS, CarryOver: carry})
	}
	return out, nil
}

// An overrideLimitJSON contains the values of a limit that an override replaces. Values that it
// does not replace are absent.
type overrideLimitJSON struct {
	Name     string `json:"name"`
	Quota    *int64 `json:"quota,omitempty"`
	Burst    *int64 `json:"burst,omitempty"`
	WindowMS *int64 `json:"window_ms,omitempty"`
}

// writeOverrideLimits returns the JSON text under which an override's limits are stored. It returns
// an error if readOverrideLimits would reject this text.
func writeOverrideLimits(limits []enforcement.OverrideLimit) (string, error) {
	out := []overrideLimitJSON{}
	for _, l := range limits {
		o := overrideLimitJSON{Name: l.Name}
		if l.Quota != enforcement.Keep {
			o.Quota = &l.Quota
		}
		if l.Burst != enforcement.Keep {
			o.Burst = &l.Burst
		}
		if l.Window != 0 {
			ms := l.Window.Milliseconds()
			o.WindowMS = &ms
		}
		out = append(out, o)
	}
	text, err := writeJSON(out)
	if err != nil {
		return "", err
	}
	back, err := readOverrideLimits(text)
	if err == nil && !slices.Equal(back, limits) {
		err = errors.New("they read back as others")
	}
	if err != nil {
		return "", &problem.Problem{Kind: problem.Invalid, Message: "the limits cannot be stored", Cause: err}
	}
	return text, nil
}

// readOverrideLimits decodes the output of writeOverrideLimits. It returns an error for any other
// text.
func readOverrideLimits(text string) ([]enforcement.OverrideLimit, error) {
	var in []overrideLimitJSON
	if err := readJSON(text, &in); err != nil {
		return nil, err
	}
	var out []enforcement.OverrideLimit
	for _, l := range in {
		o := enforcement.OverrideLimit{Name: l.Name, Quota: enforcement.Keep, Burst: enforcement.Keep}
		if l.Quota != nil {
			o.Quota = *l.Quota
		}
		if l.Burst != nil {
			o.Burst = *l.Burst
		}
		if l.WindowMS != nil {
			o.Window = time.Duration(*l.WindowMS) * time.Millisecond
			if *l.WindowMS < 1 || o.Window.Milliseconds() != *l.WindowMS {
				return nil, fmt.Errorf("limit %s: the window of %d ms is out of range", l.Name, *l.WindowMS)
			}
		}
		out = append(out, o)
	}
	return out, nil
}

// writeKeyValues returns the JSON text under which a block's key is stored. It returns an error if
// readKeyValues would reject this text.
func writeKeyValues(key map[string]string) (string, error) {
	if key == nil {
		key = map[string]string{}
	}
	text, err := writeJSON(key)
	if err != nil {
		return "", err
	}
	back, err := readKeyValues(text)
	if err == nil && !maps.Equal(back, key) {
		err = errors.New("it reads back as another")
	}
	if err != nil {
		return "", &problem.Problem{Kind: problem.Invalid, Message: "the key cannot be stored", Cause: err}
	}
	return text, nil
}

func readKeyValues(text string) (map[string]string, error) {
	var key map[string]string
	err := readJSON(text, &key)
	if err == nil && key == nil {
		err = errors.New("the stored key is null")
	}
	return key, err
}

// writeJSON returns compact JSON. It does not escape the characters <, > and &.
func writeJSON(v any) (string, error) {
	text, err := enforcement.MarshalJSON(v)
	if err != nil {
		return "", fmt.Errorf("write as JSON: %w", err)
	}
	return string(text), nil
}

func readJSON(text string, v any) error {
	if err := strictjson.Check([]byte(text), strictjson.MaxDepth); err != nil {
		// The new error contains only the message of err. The kind of err says that the caller sent
		// invalid JSON, but this document came from the database.
		return errors.New("the stored document is not strict JSON: " + err.Error())
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(v); err != nil {
		return fmt.Errorf("the stored document cannot be read: %w", err)
	}
	return nil
}
