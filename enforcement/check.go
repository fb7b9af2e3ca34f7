package enforcement

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// A Check is one request that an Engine allows or denies.
type Check struct {
	Method string // in upper case; "" if the caller sent none
	Path   string // normalized by NormalizePath; "" if the caller sent none
	// Attributes has at most MaxAttributes attributes. The attribute ip has its value in canonical
	// form, and IP has the parsed address.
	Attributes []Attribute
	IP         netip.Addr // invalid if the caller sent no ip
	Cost       int64      // 0 to MaxCost; see DefaultCost
	// DefaultCost is set if the caller sent no cost. Cost is then 1, and each policy that has
	// a cost charges its cost instead.
	DefaultCost bool
	// Mode is Enforce, Peek, Force or TakeUpTo. TakeUpTo is not for reservations, refundable checks
	// and atomic batches.
	Mode Mode
	// Requests is the number of equal requests that the check stands for, at most MaxCost. 0
	// means 1. Each policy multiplies the cost of one request by this number; the product is at
	// most MaxCost.
	Requests int64
	// IdempotencyKey is the caller's key, or "". If an earlier check with the same key was
	// charged, this check gets the decision of that check and charges nothing. In an atomic
	// batch, only the key of the first check is used.
	IdempotencyKey string
	// SentLimit is a limit that the caller sends instead of the plan's. The API accepts it only
	// with an operator key.
	SentLimit SentLimit
	// Reservation is set if the check makes a reservation. The Mode of such a check is Enforce or
	// Force, and its IdempotencyKey is "". Checks in a batch cannot make reservations.
	Reservation *CheckReservation
	// Refundable is set if RefundCheck may later return what the check charges. The engine ignores
	// it for a check with a Reservation. Checks in an atomic batch cannot be refundable.
	Refundable bool
	// Lease is the caller's ID for the lease that holds the places of concurrency limits. ""
	// stands for the ID of the decision. LeaseTTL is the time to live of the lease; 0 stands
	// for the window of each limit. In an atomic batch, only the values of the first check are
	// used.
	Lease    string
	LeaseTTL time.Duration
	Wire     Wire // read only by metrics
}

// A Wire is the protocol over which a check came.
type Wire uint8

// The wires.
const (
	WireCheck Wire = iota // POST /v1/check
	WireBatch             // POST /v1/check/batch
	WireForwardAuth
	WireEnvoyRateLimit
	WireEnvoyAuthorization
	WireRESP
	WireEnvoyQuota
	NumWires // the number of wires
)

var wireNames = [NumWires]string{"check", "batch", "forward_auth", "envoy_rate_limit", "envoy_ext_authz", "resp", "envoy_quota"}

// String returns the name of the wire in metrics.
func (w Wire) String() string { return wireNames[w] }

// An Attribute is a named property of a request, for example ip or user. An empty value
// counts as a missing attribute.
type Attribute struct{ Name, Value string }

// Upper bounds of a check. SetMethod, SetPath and AddAttribute return an error for
// larger values.
const (
	maxMethod         = 32      // bytes
	MaxPath           = 8 << 10 // bytes, before normalization
	MaxAttributes     = 16
	MaxAttributeName  = 64   // bytes
	MaxAttributeValue = 1024 // bytes
)

// SetMethod sets the method. It must be a token of RFC 9110 without lower-case letters;
// otherwise SetMethod returns an error. Methods are case-sensitive, so a lower-case
// "post" would match no policy and would not be counted.
func (c *Check) SetMethod(method string) error {
	if !methodToken(method) {
		return fmt.Errorf("must be an HTTP method of 1 to %d characters, in upper case, like GET", maxMethod)
	}
	c.Method = method
	return nil
}

// SetPath normalizes the path and sets it. It returns an error if the path is invalid.
func (c *Check) SetPath(path string) (err error) {
	if len(path) > MaxPath {
		return fmt.Errorf("must be at most %d bytes", MaxPath)
	}
	c.Path, err = NormalizePath(path)
	return err
}

// AddAttribute adds an attribute. It converts the value of ip to canonical form. The
// caller must not add two attributes with one name. If AddAttribute returns an error, c
// is unchanged.
func (c *Check) AddAttribute(name, value string) error {
	switch {
	case len(c.Attributes) == MaxAttributes:
		return fmt.Errorf("is one too many: at most %d attributes", MaxAttributes)
	case name == "" || len(name) > MaxAttributeName:
		return fmt.Errorf("has a name that is empty or longer than %d bytes", MaxAttributeName)
	case len(value) > MaxAttributeValue:
		return fmt.Errorf("must be at most %d bytes", MaxAttributeValue)
	case name == ipAttribute && value != "":
		addr, canonical, err := CanonicalIP(value)
		if err != nil {
			return err
		}
		c.IP, value = addr, canonical
	}
	c.Attributes = append(c.Attributes, Attribute{Name: name, Value: value})
	return nil
}

// methodToken reports whether s is a token of RFC 9110 without lower-case letters.
func methodToken(s string) bool {
	if s == "" || len(s) > maxMethod {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return true
}
