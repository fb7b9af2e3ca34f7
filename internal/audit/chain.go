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

// A Hash is the hash of a line of the chain. The zero Hash precedes the first
// line.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Sum is the hash of the line e behind a line with the hash before:
//
//	SHA-256(before ‖ line)
//
// where line is, in this order: the integers Seq, At (microseconds since 1970)
// and Revision; the texts ID, Actor.Kind, Actor.ID, Actor.Name,
// Origin.RequestID, Origin.Address, TenantID, Action, Object and ObjectName;
// the documents Before and After.
//
// An integer is 8 bytes, the highest first. A text is its length in bytes as
// such an integer, then its bytes in UTF-8. A document is the integer 0 if there
// is none, else the integer 1 and its text. Lengths keep what stands in one
// field from being taken for the next.
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

// A Head is the end of the chain, which a Store keeps beside the lines.
type Head struct {
	// Seq and Hash are those of the last line; 0 and zero without lines.
	Seq  int64
	Hash Hash
	// Outside is the number of lines that were written before the chain
	// existed. Only their number is verified.
	Outside int64
}

// A Verdict is the result of verifying the chain.
type Verdict struct {
	Head Head
	// Lines is the number of correct lines, from the first one on.
	Lines int64
	// Broken is the first incorrect line, or nil.
	Broken *Broken
}

// Broken describes the place where a chain was changed.
type Broken struct {
	// Seq is the place of the line; 0: it is outside of the chain.
	Seq int64
	// ID is the id of the line; "" for a missing line.
	ID string
	// What describes the fault. It follows the name of the line in a sentence.
	What string
}

// Error names the line and its fault.
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

// A Walk verifies the lines of a chain in the order of Seq.
type Walk struct {
	// Noted are heads that were published before: the chain must contain them.
	Noted  []Head
	last   Hash
	lines  int64
	broken *Broken
}

// Next verifies the next line. It returns false if the walk ends there.
func (w *Walk) Next(e *Entry) bool {
	place := w.lines + 1
	switch {
	case e.Seq > place:
		w.broken = &Broken{Seq: place, What: fmt.Sprintf("is missing: the next one is %d", e.Seq)}
	case e.Seq < place:
		w.broken = &Broken{Seq: e.Seq, ID: e.ID, What: "is there twice"}
	case e.Sum(w.last) != e.Hash:
		w.broken = &Broken{Seq: place, ID: e.ID, What: "is not what was written here: it was changed, put in or moved"}
	default:
		w.last, w.lines = e.Hash, place
		w.compare()
	}
	return w.broken == nil
}

// compare compares the last line with the noted heads.
func (w *Walk) compare() {
	for _, h := range w.Noted {
		if h.Seq == w.lines && h.Hash != w.last {
			w.broken = &Broken{Seq: h.Seq, What: "has not the hash that was noted: it, or a line before it, was written anew"}
		}
	}
}

// End returns the result after all lines, or after Next returned false. outside
// is the number of lines that are outside of the chain.
func (w *Walk) End(h Head, outside int64) Verdict {
	if w.broken == nil {
		w.broken = w.against(h, outside)
	}
	return Verdict{Head: h, Lines: w.lines, Broken: w.broken}
}

// shorter reports whether a noted head is behind the last line.
func (w *Walk) shorter() bool {
	return slices.ContainsFunc(w.Noted, func(h Head) bool { return h.Seq > w.lines })
}

// ParseHead reads the form of Head.String.
func ParseHead(text string) (Head, error) {
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseInt(number, 10, 64)
	raw, failed := hex.DecodeString(hash)
	if err != nil || failed != nil || seq < 1 || len(raw) != sha256.Size {
		return Head{}, fmt.Errorf("%q is not a head like 42:0f3a…, a line's number and its hash of 64 digits", text)
	}
	return Head{Seq: seq, Hash: Hash(raw)}, nil
}

// String returns the number and the hash of the last line.
func (h Head) String() string { return strconv.FormatInt(h.Seq, 10) + ":" + h.Hash.String() }

// against compares the lines with the head.
func (w *Walk) against(h Head, outside int64) *Broken {
	switch {
	case w.lines < h.Seq:
		return &Broken{Seq: w.lines + 1, What: fmt.Sprintf("is missing: the head of the chain tells of %d lines", h.Seq)}
	case w.lines > h.Seq:
		return &Broken{Seq: h.Seq + 1, What: fmt.Sprintf("is one too many: the head of the chain tells of %d lines", h.Seq)}
	case w.last != h.Hash:
		return &Broken{
			Seq:  h.Seq,
			What: "has not the hash that the head of the chain has: the head was changed, or the last lines were written anew",
		}
	case w.shorter():
		return &Broken{Seq: w.lines + 1, What: "is missing: a head behind it was noted"}
	case outside != h.Outside:
		return &Broken{What: fmt.Sprintf("are %d, and were %d when the chain began: some were removed, or put in by hand or by an older "+
			"headgate", outside, h.Outside)}
	}
	return nil
}
