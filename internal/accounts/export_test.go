package accounts

import (
	"context"
	"strings"
	"sync/atomic"
)

// Unexported identifiers for the tests.

var PasswordFault = passwordFault

const (
	MaxMembers  = maxMembers
	MaxSessions = maxSessions
)

// CountHashes counts the hashes that a People makes from now on, under a cost
// that tests can pay.
func CountHashes(p *People) *atomic.Int64 {
	p.passwords.cost = hashCost{memory: 64, passes: 1, lanes: 1}
	p.passwords.dummy.cost = p.passwords.cost
	var n atomic.Int64
	key := p.passwords.key
	p.passwords.key = func(password string, salt []byte, cost hashCost, length int) []byte {
		n.Add(1)
		return key(password, salt, cost, length)
	}
	return &n
}

// RaiseCost makes hashes take more from now on.
func RaiseCost(p *People) { p.passwords.cost.passes++ }

// Passwords are the hashes of a program, with a way to see how many run at once.
type Passwords struct{ *passwords }

// NewPasswords makes one whose hashes call begun and wait for end.
func NewPasswords(begun func(), end <-chan struct{}) Passwords {
	p := newPasswords()
	p.cost = hashCost{memory: 64, passes: 1, lanes: 1}
	key := p.key
	p.key = func(password string, salt []byte, cost hashCost, length int) []byte {
		if begun != nil {
			begun()
			<-end
		}
		return key(password, salt, cost, length)
	}
	return Passwords{p}
}

func (p Passwords) Hash(ctx context.Context, password string) (string, error) {
	return p.hash(ctx, password)
}

func (p Passwords) Verify(ctx context.Context, stored, password string) (bool, error) {
	return p.verify(ctx, stored, password)
}

func (p Passwords) Outdated(stored string) bool { return p.outdated(stored) }

// CurrentHash makes a hash at the cost of the product.
func CurrentHash(ctx context.Context, password string) (string, error) {
	return newPasswords().hash(ctx, password)
}

// ReadHash reads a hash and writes it again.
func ReadHash(text string) (again string, memoryKiB, passes uint32, lanes uint8, err error) {
	h, err := parseHash(text)
	if err != nil {
		return "", 0, 0, 0, err
	}
	return h.phc(), h.cost.memory, h.cost.passes, h.cost.lanes, nil
}

// CommonWords are the words of common_passwords.txt in their order.
func CommonWords() []string {
	_, words, _ := strings.Cut(commonText, "password_policy.go.\n")
	return strings.Split(strings.TrimSuffix(words, "\n"), "\n")
}
