package accounts

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"
)

// hashCost contains the cost parameters of an argon2id hash.
type hashCost struct {
	memory uint32 // KiB
	passes uint32
	lanes  uint8
}

// currentCost is the cost of new password hashes. A stored hash with a lower cost is replaced
// when its user next signs in.
var currentCost = hashCost{memory: 19 * 1024, passes: 2, lanes: 1}

// Upper bounds of the cost parameters in a stored hash. Without them, a manipulated row of the
// database could make a sign-in use all memory of the server.
const (
	mostMemory = 256 * 1024 // KiB
	mostPasses = 16
	mostLanes  = 8

	saltBytes    = 16
	keyBytes     = 32
	hashesAtOnce = 4 // maximum number of concurrent hashes, which bounds their memory to 76 MiB
)

// A passwordHash is a parsed argon2id hash.
type passwordHash struct {
	cost      hashCost
	salt, key []byte
}

// phc returns the hash in the text form that parseHash parses:
// $argon2id$v=19$m=19456,t=2,p=1$<salt>$<key>. salt and key are in base64 without padding.
func (h passwordHash) phc() string {
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.cost.memory, h.cost.passes, h.cost.lanes, b.EncodeToString(h.salt), b.EncodeToString(h.key))
}

var errHashForm = errors.New("not an argon2id hash in PHC form")

// parseHash parses a hash in the form that phc returns. It returns an error if the form is
// wrong or if a cost parameter exceeds its upper bound. The error does not contain the hash.
func parseHash(text string) (passwordHash, error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return passwordHash{}, errHashForm
	}
	var h passwordHash
	numbers := strings.Split(parts[3], ",")
	if len(numbers) != 3 {
		return passwordHash{}, errHashForm
	}
	m, ok1 := costNumber(numbers[0], "m=", mostMemory)
	t, ok2 := costNumber(numbers[1], "t=", mostPasses)
	p, ok3 := costNumber(numbers[2], "p=", mostLanes)
	if !ok1 || !ok2 || !ok3 {
		return passwordHash{}, errHashForm
	}
	h.cost = hashCost{memory: m, passes: t, lanes: uint8(p)}
	var err1, err2 error
	h.salt, err1 = base64.RawStdEncoding.DecodeString(parts[4])
	h.key, err2 = base64.RawStdEncoding.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(h.salt) < 8 || len(h.salt) > 64 || len(h.key) < 16 || len(h.key) > 64 || h.phc() != text {
		return passwordHash{}, errHashForm
	}
	return h, nil
}

// costNumber parses a cost parameter, like "m=19456". name is the part up to and including the
// sign =. most is the largest valid number. It returns false if the parameter is invalid.
func costNumber(text, name string, most uint64) (uint32, bool) {
	digits, named := strings.CutPrefix(text, name)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), named && err == nil && n >= 1 && n <= most
}

// passwords computes and compares password hashes. It bounds the number of hashes that are computed
// at the same time, because each one needs much memory.
type passwords struct {
	cost  hashCost
	slots chan struct{}
	dummy passwordHash // a random hash; verify uses its salt and cost if the user has no valid hash
	// key computes the argon2id key of a password. Tests replace it to count the calls.
	key func(password string, salt []byte, cost hashCost, length int) []byte
}

func newPasswords() *passwords {
	p := &passwords{cost: currentCost, slots: make(chan struct{}, hashesAtOnce), key: argon2Key}
	p.dummy = passwordHash{cost: p.cost, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}
	rand.Read(p.dummy.key) // random, so that no known password matches
	return p
}

func argon2Key(password string, salt []byte, cost hashCost, length int) []byte {
	return argon2.IDKey([]byte(password), salt, cost.passes, cost.memory, cost.lanes, uint32(length))
}

// derive calls key when fewer than hashesAtOnce hashes are being computed. If ctx ends before
// that, it returns an error.
func (p *passwords) derive(ctx context.Context, password string, salt []byte, cost hashCost, length int) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
	return p.key(password, salt, cost, length), nil
}

// hash returns the hash of a password with a new random salt, in the text form of phc.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	h := passwordHash{cost: p.cost, salt: make([]byte, saltBytes)}
	rand.Read(h.salt) // rand.Read never returns an error
	var err error
	if h.key, err = p.derive(ctx, password, h.salt, h.cost, keyBytes); err != nil {
		return "", err
	}
	return h.phc(), nil
}

// verify reports whether password matches the stored hash. It always computes exactly one hash,
// even if stored is "" or invalid, or if the password is too long. Therefore the duration of verify
// does not show which of these cases occurred.
func (p *passwords) verify(ctx context.Context, stored, password string) (bool, error) {
	h, err := parseHash(stored)
	known := err == nil
	if !known {
		h = p.dummy
	}
	if len(password) > maxPasswordBytes {
		known, password = false, ""
	}
	key, err := p.derive(ctx, password, h.salt, h.cost, len(h.key))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(key, h.key) == 1 && known, nil
}

// outdated reports whether a stored hash has a lower cost, a shorter salt or a shorter key than
// new hashes.
func (p *passwords) outdated(stored string) bool {
	h, err := parseHash(stored)
	return err == nil && (h.cost.memory < p.cost.memory || h.cost.passes < p.cost.passes || len(h.key) < keyBytes || len(h.salt) < saltBytes)
}
