package api

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

// A nullableSlug is a slug or null.
type nullableSlug *string

// conform checks the body of a management request against the generated type t, before
// encoding/json decodes it. A member is Malformed if its name is unknown, repeated, or differs from
// the real name in upper and lower case, or if its value is null. encoding/json would accept all of
// these. Only a nullableSlug may be null. An optional member with an empty value is Invalid: to get
// the default, a client must leave the member out.
func conform(body []byte, t reflect.Type) error {
	var f problem.Fields
	var d strictjson.Decoder
	d.Reset(string(body), strictjson.MaxDepth)
	conformValue(&d, t, &f)
	if err := d.End(); err != nil {
		return err
	}
	return f.Err()
}

var (
	typeTime = reflect.TypeFor[Instant]()
	// typeNumber is the type of numbers whose text must be kept with all digits.
	typeNumber = reflect.TypeFor[json.Number]()
	typeRaw    = reflect.TypeFor[json.RawMessage]()

	typeNullableSlug = reflect.TypeFor[nullableSlug]()
)

func conformValue(d *strictjson.Decoder, t reflect.Type, f *problem.Fields) {
	switch {
	case t == typeNullableSlug && d.Null():
	case t == typeNullableSlug:
		if emptyNext(d, t.Elem()) != "" {
			f.Add(d.Pointer(), "must not be empty; null is none")
		}
		d.Text()
	case t.Kind() == reflect.Pointer:
		conformValue(d, t.Elem(), f)
	case t == typeRaw:
		d.Skip()
	case t == typeTime:
		conformInstant(d)
	case t == typeNumber:
		conformNumber(d)
	case t.Kind() == reflect.Map:
		for range d.Members() {
			conformValue(d, t.Elem(), f)
		}
	case t.Kind() == reflect.Struct:
		conformMembers(d, t, f, false)
	case t.Kind() == reflect.Slice:
		for range d.Elements() {
			conformValue(d, t.Elem(), f)
		}
	case t.Kind() == reflect.String:
		d.Text()
	case t.Kind() == reflect.Bool:
		d.Bool()
	case t.Kind() == reflect.Int, t.Kind() == reflect.Int64:
		d.Int(math.MinInt64, math.MaxInt64)
	case t.Kind() == reflect.Int32:
		d.Int(math.MinInt32, math.MaxInt32)
	default:
		panic("api: no rule for " + t.String())
	}
}

func conformInstant(d *strictjson.Decoder) {
	at := d.Pointer()
	if text := d.Text(); d.Err() == nil && !instantForm(text) {
		d.FailAt(at, "%s", notInstant)
	}
}

func conformNumber(d *strictjson.Decoder) {
	if kind := d.Kind(); kind != 0 && kind != '-' && (kind < '0' || kind > '9') {
		d.Fail("must be a number")
	}
	d.Skip()
}

// conformMembers checks the members of an object. If patch is true, the object is a merge patch, in
// which every member may be missing or null.
func conformMembers(d *strictjson.Decoder, t reflect.Type, f *problem.Fields, patch bool) {
	at := d.Pointer()
	var seen uint64 // bit set of the fields that the object already has
	for name := range d.Members() {
		i, optional, ok := member(t, name)
		if !ok {
			d.Unknown()
			continue
		}
		seen |= 1 << i
		field := t.Field(i).Type
		if patch && d.Null() {
			continue
		}
		if word := emptyNext(d, field); optional && word != "" {
			f.Add(d.Pointer(), "must not be %s; leave it out for the default", word)
		}
		conformValue(d, field, f)
	}
	for i := range t.NumField() {
		if name, optional := tag(t.Field(i)); !patch && !optional && seen&(1<<i) == 0 {
			d.FailAt(at+"/"+name, "is required")
		}
	}
}

// emptyNext returns the word "empty" or "0" if the next value is the zero value of its type, for use in an error.
// Otherwise it returns "". The check is necessary before decoding: afterwards, Go code cannot tell a zero value from a
// missing member.
func emptyNext(d *strictjson.Decoder, t reflect.Type) (word string) {
	next := d.Rest()
	if t == typeNumber {
		return "" // the service validates this number, so 0 needs no check here
	}
	switch t.Kind() {
	case reflect.String:
		if strings.HasPrefix(next, `""`) {
			return "empty"
		}
	case reflect.Int, reflect.Int32, reflect.Int64:
		if strings.HasPrefix(next, "0") {
			return "0"
		}
	}
	return ""
}

func member(t reflect.Type, name string) (i int, optional, ok bool) {
	for i := range t.NumField() {
		if n, optional := tag(t.Field(i)); n == name {
			return i, optional, true
		}
	}
	return 0, false, false
}

func tag(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "omit")
}

const notInstant = "must be an instant of RFC 3339 from 1970 to 9999, like 2026-11-21T09:00:00Z"

// instantForm reports whether s is an RFC 3339 time. time.Parse accepts more: a comma, hours with
// one digit, and offsets of 24 hours or more. instantForm also rejects the year 1, because Go's
// zero time stands for a missing member.
func instantForm(s string) bool {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || s[13] != ':' || strings.Contains(s, ",") {
		return false
	}
	if s[len(s)-1] != 'Z' && (s[len(s)-5:len(s)-3] > "23" || s[len(s)-2:] > "59") {
		return false
	}
	year := t.UTC().Year()
	return year >= 1970 && year <= 9999
}
