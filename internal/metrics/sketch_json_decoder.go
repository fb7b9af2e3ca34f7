package metrics

import (
	"encoding/json"
	"math"
	"strings"
	"unicode/utf8"
)

// Decoding sketches takes most of the time of a query. This decoder is several times as fast as
// encoding/json, because it accepts only the exact text that the methods encode write: the same
// members in the same order, without spaces.

// A scan decodes one document. at is the position of the next byte in text. bad is set after the
// first error and never reset.
type scan struct {
	text string
	at   int
	bad  bool
}

// is reports whether the rest of the document begins with next. If so, the method also moves the
// position behind next.
func (s *scan) is(next string) bool {
	if s.bad || !strings.HasPrefix(s.text[s.at:], next) {
		return false
	}
	s.at += len(next)
	return true
}

// want moves the position behind next. If the rest of the document does not begin with next, it
// sets bad.
func (s *scan) want(next string) {
	if !s.is(next) {
		s.bad = true
	}
}

// end reports whether the whole document was read without an error.
func (s *scan) end() bool { return !s.bad && s.at == len(s.text) }

// number reads an integer that is at least 0 and below 10^18.
func (s *scan) number() (n int64) {
	from := s.at
	for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
		n = n*10 + int64(s.text[s.at]-'0')
		s.at++
	}
	digits := s.at - from
	if s.bad || digits == 0 || digits > 18 || digits > 1 && s.text[from] == '0' {
		s.bad = true
		return 0
	}
	return n
}

// string reads a string. If the string has no escapes, the result is a slice of the document, not a
// copy.
func (s *scan) string() string {
	s.want(`"`)
	from, escaped := s.at, false
	for ; !s.bad && s.at < len(s.text) && s.text[s.at] != '"'; s.at++ {
		switch c := s.text[s.at]; {
		case c < ' ':
			s.bad = true
		case c == '\\':
			escaped = true
			s.at++ // skip the escaped character, because it may be a quote
		}
	}
	if s.bad || s.at >= len(s.text) {
		s.bad, s.at = true, len(s.text)
		return ""
	}
	piece := s.text[from:s.at]
	s.at++
	if !utf8.ValidString(piece) {
		s.bad = true // the text is not from encode, because encoding/json replaces invalid UTF-8
	}
	if escaped {
		var out string
		s.bad = s.bad || json.Unmarshal([]byte(`"`+piece+`"`), &out) != nil
		return out
	}
	return piece
}

// list reads a list. It calls the function element for each element of the list. Each call must
// read one element.
func (s *scan) list(element func()) {
	s.want("[")
	if s.is("]") {
		return
	}
	for !s.bad {
		element()
		if !s.is(",") {
			s.want("]")
			return
		}
	}
}

func (s *scan) pairs() pairs {
	list := pairs{}
	s.list(func() {
		s.want("[")
		upper := s.number()
		s.want(",")
		n := s.number()
		s.want("]")
		list = append(list, [2]int64{upper, n})
	})
	return list
}

func scanRetryTimes(text string) (doc retryDoc, ok bool) {
	s := scan{text: text}
	s.want(`{"buckets":`)
	doc.Buckets = s.pairs()
	if s.is(`,"never":`) {
		doc.Never = s.number()
	}
	s.want(`}`)
	return doc, s.end()
}

func scanLatencies(text string) (doc latencyDoc, ok bool) {
	s := scan{text: text}
	s.want(`{"shared":`)
	doc.Shared = s.pairs()
	s.want(`,"local":`)
	doc.Local = s.pairs()
	s.want(`}`)
	return doc, s.end()
}

func scanRemaining(text string) (doc remainingDoc, ok bool) {
	s := scan{text: text}
	s.want(`{"policies":{`)
	doc.Policies = make(map[string][]int64)
	for more := !s.is(`}`); more && !s.bad; {
		policy := s.string()
		s.want(`:`)
		counts := make([]int64, 0, remainingBuckets)
		s.list(func() { counts = append(counts, s.number()) })
		if _, twice := doc.Policies[policy]; twice {
			s.bad = true // a duplicate name, which encode cannot write
		}
		doc.Policies[policy] = counts
		if more = s.is(`,`); !more {
			s.want(`}`)
		}
	}
	s.want(`}`)
	return doc, s.end()
}

// scanTop decodes the stored form of topKeys. The strings of the result are slices of the document,
// unless they have escapes.
func scanTop(text string) (r topRead, ok bool) {
	s := scan{text: text}
	s.want(`{"capacity":`)
	r.capacity = int(s.number())
	s.want(`,"total":`)
	r.total = s.number()
	if s.is(`,"floor":`) {
		r.floor = s.number()
	}
	s.want(`,"policies":`)
	s.list(func() {
		p := topPolicy{}
		s.want(`{"policy":`)
		p.Policy = s.string()
		s.want(`,"count_by":`)
		s.list(func() { p.CountBy = append(p.CountBy, s.string()) })
		s.want(`}`)
		r.policies = append(r.policies, p)
	})
	s.want(`,"keys":`)
	r.keys = make([]topReadKey, 0, strings.Count(text[s.at:], `{"t":`))
	var room []topValue // memory for the values of several keys, allocated together
	s.list(func() {
		if cap(room)-len(room) < usualValues {
			room = make([]topValue, 0, cap(r.keys)-len(r.keys)+usualValues)
		}
		from := len(room)
		room = s.key(&r, room)
		r.keys[len(r.keys)-1].values = room[from:len(room):len(room)]
	})
	s.want(`}`)
	return r, s.end()
}

// usualValues is the number of attribute values for which scanTop reserves memory in addition to
// one for each key. Most keys have fewer values.
const usualValues = 8

// key reads one key and appends it to r.keys. It appends the attribute values of the key to
// values and returns the result.
func (s *scan) key(r *topRead, values []topValue) []topValue {
	var k topReadKey
	s.want(`{"t":`)
	tenant := s.number()
	if tenant > math.MaxUint32 {
		s.bad = true
	}
	k.tenant = uint32(tenant)
	s.want(`,"p":`)
	k.policy = int(s.number())
	s.want(`,"v":`)
	s.list(func() {
		if s.is("null") {
			values = append(values, topValue{missing: true})
			return
		}
		values = append(values, topValue{text: s.string()})
	})
	k.redacted = s.is(`,"r":true`)
	s.want(`,"c":`)
	k.count = s.number()
	if s.is(`,"e":`) {
		k.error = s.number()
	}
	s.want(`}`)
	r.keys = append(r.keys, k)
	return values
}
