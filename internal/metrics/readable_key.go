package metrics

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/enforcement"
)

// A topText is the readable form of a key: its policy, and the values of the attributes by which
// the policy counts. When another key takes over an entry of a sketch, the sketch reuses the memory
// of the topText.
type topText struct {
	tenant   uint32
	policy   string // slug; "" if the key stands for the tenant itself
	names    []string
	values   []topValue
	redacted bool
}

type topValue struct {
	text    string // at most maxTopValue bytes
	missing bool
}

// maxTopValue is the maximum length of a readable attribute value in bytes. A longer value is
// replaced by its beginning and a hash of the whole value, so that two values with the same
// beginning stay distinct.
const (
	maxTopValue = 128
	keptOfValue = maxTopValue - len("…") - hashedDigits
)

// hashedDigits is the number of hexadecimal digits of a SHA-256 hash that a shortened or redacted
// value contains.
const hashedDigits = 12

// describe sets x to the key that the rule r computes from the check c. It uses parts as temporary
// memory. It returns parts, so that the caller can pass the same memory to the next call.
func (x *topText) describe(s *enforcement.Subject, r *enforcement.Rule, c *enforcement.Check,
	parts []enforcement.KeyPart,
) []enforcement.KeyPart {
	parts = r.KeyOf(c, parts[:0])
	x.tenant, x.policy, x.names, x.values, x.redacted = s.Number, r.Policy, r.CountBy, x.values[:0], s.Redact
	for i := range parts {
		v := topValue{missing: parts[i].Missing}
		switch {
		case v.missing:
		case s.Redact:
			v.text = redact(s.Number, r.Policy, parts[i].Value)
		default:
			v.text = shorten(parts[i].Value)
		}
		x.values = append(x.values, v)
	}
	return parts
}

// redact returns a hash that replaces an attribute value if the tenant has redact_values. Within
// one policy, equal values have equal hashes, so that a redacted key can still be counted.
func redact(tenant uint32, policy, value string) string {
	text := binary.BigEndian.AppendUint32(nil, tenant)
	text = binary.BigEndian.AppendUint32(text, uint32(len(policy)))
	text = append(append(text, policy...), value...)
	return "sha256:" + digits(text)
}

// RedactedValue returns the hash that replaces an attribute value in TopKey.Values if the tenant
// has redact_values.
func RedactedValue(tenant uint32, policy, value string) string { return redact(tenant, policy, value) }

// shorten returns a copy of a value. It shortens the copy if the value is longer than maxTopValue.
func shorten(value string) string {
	if len(value) <= maxTopValue {
		return strings.Clone(value)
	}
	end := keptOfValue
	for end > 0 && !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end] + "…" + digits([]byte(value))
}

func digits(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:hashedDigits/2])
}

// id returns a hash of the text of the key. The hash identifies the key in sketches that combine
// several tenants or plan versions.
func (x *topText) id() topID {
	var room [512]byte
	sum := sha256.Sum256(x.appendTo(room[:0]))
	id := topID{scope: x.tenant}
	copy(id.partition[:], sum[:])
	return id
}

// appendTo appends the text of the key, without its tenant, to text. The text is unambiguous:
// different keys have different texts.
func (x *topText) appendTo(text []byte) []byte {
	text = appendText(text, x.policy)
	for _, name := range x.names {
		text = appendText(text, name)
	}
	for _, v := range x.values {
		if v.missing {
			text = append(text, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		text = appendText(text, v.text)
	}
	return text
}

func appendText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(text))), text...)
}

// compare orders two keys by their text. Rankings use it for keys with equal counts, so that their
// order is stable.
func (x *topText) compare(o *topText) int {
	return cmp.Or(
		cmp.Compare(x.tenant, o.tenant),
		cmp.Compare(x.policy, o.policy),
		slices.Compare(x.names, o.names),
		slices.CompareFunc(x.values, o.values, func(a, b topValue) int {
			return cmp.Or(cmp.Compare(a.text, b.text), cmp.Compare(truthNumber(a.missing), truthNumber(b.missing)))
		}))
}

func truthNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}
