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

// hashCost holds the cost parameters of an argon2id hash.
type hashCost struct {
	memory uint32 // KiB
	passes uint32
	lanes  uint8
}

// currentCost is the cost of new hashes. A stored hash with a lower cost is
// replaced at the next sign-in.
var currentCost = hashCost{memory: 19 * 1024, passes: 2, lanes: 1}

// Upper bounds of the cost parameters of a stored hash. Without them, a manipulated database row could make a sign-in
// use all memory.
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

// phc formats the hash as text that parseHash reads: $argon2id$v=19$m=19456,t=2,p=1$<salt>$<key>, with salt and key
// in base64 without padding.
func (h passwordHash) phc() string {
	b := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		h.cost.memory, h.cost.passes, h.cost.lanes, b.EncodeToString(h.salt), b.EncodeToString(h.key))
}

var errHashForm = errors.New("not an argon2id hash in PHC form")

// parseHash parses a hash in the form that phc writes. The cost parameters must be within the bounds above. The error
// does not contain the hash.
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

// costNumber parses a cost like "m=19456".
func costNumber(text, name string, most uint64) (uint32, bool) {
	digits, named := strings.CutPrefix(text, name)
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), named && err == nil && n >= 1 && n <= most
}

// passwords hashes and verifies passwords. It bounds the number of concurrent
// hashes, because each one needs memory.
type passwords struct {
	cost  hashCost
	slots chan struct{}
	dummy passwordHash // a random hash; verify compares with it if the user has no valid hash
	// key derives the argon2id key of a password. Tests replace it to count its calls.
	key func(password string, salt []byte, cost hashCost, length int) []byte
}

func newPasswords() *passwords {
	p := &passwords{cost: currentCost, slots: make(chan struct{}, hashesAtOnce), key: argon2Key}
	p.dummy = passwordHash{cost: p.cost, salt: make([]byte, saltBytes), key: make([]byte, keyBytes)}
	rand.Read(p.dummy.key) // so that no known password matches
	return p
}

func argon2Key(password string, salt []byte, cost hashCost, length int) []byte {
	return argon2.IDKey([]byte(password), salt, cost.passes, cost.memory, cost.lanes, uint32(length))
}

// derive waits for a free slot and derives a key. It returns an error if ctx ends while it waits.
func (p *passwords) derive(ctx context.Context, password string, salt []byte, cost hashCost, length int) ([]byte, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to hash a password: %w", ctx.Err())
	}
	return p.key(password, salt, cost, length), nil
}

// hash returns the hash of a password with a new random salt, in the form that phc writes.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	h := passwordHash{cost: p.cost, salt: make([]byte, saltBytes)}
	rand.Read(h.salt) // never fails: crypto/rand ends the program instead
	var err error
	if h.key, err = p.derive(ctx, password, h.salt, h.cost, keyBytes); err != nil {
		return "", err
	}
	return h.phc(), nil
}

// verify reports whether a password matches a stored hash. It always computes exactly one hash, even if the stored
// hash is "" or invalid or the password is too long. So its duration does not show which case it was.
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

// outdated reports whether a stored hash has lower cost parameters than new hashes have.
func (p *passwords) outdated(stored string) bool {
	h, err := parseHash(stored)
	return err == nil && (h.cost.memory < p.cost.memory || h.cost.passes < p.cost.passes || len(h.key) < keyBytes || len(h.salt) < saltBytes)
}
