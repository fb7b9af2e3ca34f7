package enforcement

import (
	"fmt"
	"strings"
)

// Bounds of a check beside those of its attributes.
const (
	MaxMethod = 32      // bytes
	MaxPath   = 8 << 10 // bytes, as sent
)

// SetMethod takes the method of a request: a token of RFC 9110 without
// lower-case letters. Methods are case-sensitive, and a "post" that matched
// nothing would pass uncounted. The error says what is wrong with it.
func (c *Check) SetMethod(method string) error {
	if !methodToken(method) {
		return fmt.Errorf("must be an HTTP method of 1 to %d characters, in upper case, like GET", MaxMethod)
	}
	c.Method = method
	return nil
}

// SetPath takes the path of a request and normalises it. The error says what is
// wrong with it.
func (c *Check) SetPath(path string) (err error) {
	if len(path) > MaxPath {
		return fmt.Errorf("must be at most %d bytes", MaxPath)
	}
	c.Path, err = NormalizePath(path)
	return err
}

// AddAttribute adds an attribute of a request; ip becomes canonical. That no
// other has its name is the caller's to see. The error says what is wrong with
// it, and it is not added then.
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

func methodToken(s string) bool {
	if s == "" || len(s) > MaxMethod {
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
