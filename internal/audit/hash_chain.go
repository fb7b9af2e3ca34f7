package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Hash is the SHA-256 hash of a line of the audit log. It covers the line and the Hash of the
// line before it. For the first line, the Hash before it is the zero Hash.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Sum returns the hash of the line e, given the hash of the previous line:
//
//	SHA-256(before ‖ line)
//
// The bytes of line are, in this order: the integers Seq, At (microseconds since 1970) and Revision; the texts ID,
// Actor.Kind, Actor.ID, Actor.Name, Origin.RequestID, Origin.Address, TenantID, Action, Object and ObjectName; the
// documents Before and After.
//
// An integer is 8 bytes in big-endian order. A text is its length in bytes as an integer, followed by its bytes in
// UTF-8. A document is the integer 0 if it is nil, otherwise the integer 1 followed by its text. Because of the
// lengths, bytes cannot move from one field to the next without a change of the hash.
func (e *Entry) Sum(before Hash) Hash {
	line := append(make([]byte, 0, 512), before[:]...)
	for _, n := range []int64{e.Seq, e.At.UnixMicro(), e.Revision} {
		line = appendInteger(line, n)
	}
	for _, text := range []string{
		e.ID, e.Actor.Kind, e.Actor.ID, e.Actor.Name, e.Origin.RequestID, e.Origin.Address,
		e.TenantID, e.Action, e.Object, e.ObjectName,
	} {
		line = appendText(line, text)
	}
	line = appendDocument(line, e.Before)
	line = appendDocument(line, e.After)
	return sha256.Sum256(line)
}

func appendInteger(line []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(line, uint64(n))
}

func appendText[T string | json.RawMessage](line []byte, text T) []byte {
	return append(appendInteger(line, int64(len(text))), text...)
}

func appendDocument(line []byte, document json.RawMessage) []byte {
	if document == nil {
		return appendInteger(line, 0)
	}
	return appendText(appendInteger(line, 1), document)
}

// A Head contains the position and the hash of the last line of the chain. The database stores
// it in a separate row.
type Head struct {
	// Seq is the position of the last line, and Hash its hash. Both are zero if the chain has
	// no lines.
	Seq  int64
	Hash Hash
	// Outside is the number of lines that were written by a release of Headgate without the
	// chain. They have no hash, so only their number is verified.
	Outside int64
}

// A Verdict is the result of a verification of the chain.
type Verdict struct {
	Head Head
	// Lines is the number of lines at the start of the chain that were verified without a
	// fault.
	Lines int64
	// Broken describes the first fault; nil if there is none.
	Broken *Broken
}

// A Broken describes the first fault that a verification found.
type Broken struct {
	// Seq is the position of the faulty line. It is 0 if the number of lines outside the chain is
	// wrong.
	Seq int64
	// ID is the ID of the faulty line. It is set only if the line is a duplicate or does not
	// match its hash.
	ID string
	// What describes the fault, for example "is a duplicate". Error returns the number of the line and then this
	// text.
	What string
}

// Error returns a sentence that names the line and its fault.
func (b *Broken) Error() string {
	name := fmt.Sprintf("line %d", b.Seq)
	if b.Seq == 0 {
		name = "the lines outside the chain"
	}
	if b.ID != "" {
		name += " (" + b.ID + ")"
	}
	return name + " " + b.What
}

// A Walk verifies the lines of a chain one after the other, in the order of Seq.
type Walk struct {
	// Noted contains heads that were logged earlier: the position and the hash of the line that was
	// then the last. The chain must still contain these lines.
	Noted  []Head
	last   Hash
	lines  int64
	broken *Broken
}

// Next verifies the line e, which follows the line of the previous call. It returns false after
// a fault; the caller then calls End.
func (w *Walk) Next(e *Entry) bool {
	place := w.lines + 1
	switch {
	case e.Seq > place:
		w.broken = &Broken{Seq: place, What: fmt.Sprintf("is missing: the next one is %d", e.Seq)}
	case e.Seq < place:
		w.broken = &Broken{Seq: e.Seq, ID: e.ID, What: "is a duplicate"}
	case e.Sum(w.last) != e.Hash:
		w.broken = &Broken{Seq: place, ID: e.ID, What: "does not match its hash: it was changed, inserted or moved"}
	default:
		w.last, w.lines = e.Hash, place
		w.compare()
	}
	return w.broken == nil
}

// compare compares the hash of the last verified line with the noted head that has the same
// position, if there is one.
func (w *Walk) compare() {
	for _, h := range w.Noted {
		if h.Seq == w.lines && h.Hash != w.last {
			w.broken = &Broken{Seq: h.Seq, What: "does not have the published hash: it, or a line before it, was rewritten"}
		}
	}
}

// End returns the result of the verification. The caller calls End after the last line, or after
// Next has returned false. h is the stored head. outside is the number of lines in the database
// that are outside the chain.
func (w *Walk) End(h Head, outside int64) Verdict {
	if w.broken == nil {
		w.broken = w.against(h, outside)
	}
	return Verdict{Head: h, Lines: w.lines, Broken: w.broken}
}

// shorter reports whether a noted head has a higher position than the last verified line. If
// so, lines are missing at the end.
func (w *Walk) shorter() bool {
	return slices.ContainsFunc(w.Noted, func(h Head) bool { return h.Seq > w.lines })
}

// ParseHead parses a text that Head.String returned.
func ParseHead(text string) (Head, error) {
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	raw, failed := hex.DecodeString(hash)
	if err != nil || failed != nil || seq < 1 || len(raw) != sha256.Size {
		return Head{}, fmt.Errorf("%q is not a head like 42:0f3a…, a line's number and its hash of 64 digits", text)
	}
	return Head{Seq: seq, Hash: Hash(raw)}, nil
}

// String returns the position and the hash of the last line, like "42:0f3a…".
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash.String() }

// against returns the first difference between the verified lines and the stored head h, or between
// outside and h.Outside. It returns nil if there is none.
func (w *Walk) against(h Head, outside int64) *Broken {
	switch {
	case w.lines < h.Seq:
		return &Broken{Seq: w.lines + 1, What: fmt.Sprintf("is missing: according to its head, the chain has %d lines", h.Seq)}
	case w.lines > h.Seq:
		return &Broken{Seq: h.Seq + 1, What: fmt.Sprintf("is unexpected: according to its head, the chain has %d lines", h.Seq)}
	case w.last != h.Hash:
		return &Broken{
			Seq:  h.Seq,
			What: "does not have the hash of the chain's head: the head was changed, or the last lines were rewritten",
		}
	case w.shorter():
		return &Broken{Seq: w.lines + 1, What: "is missing: a head of a later line was published"}
	case outside != h.Outside:
		return &Broken{What: fmt.Sprintf("are %d, and were %d when the chain began: some were removed, or inserted by hand or by an older "+
			"headgate", outside, h.Outside)}
	}
	return nil
}
