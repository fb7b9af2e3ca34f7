package tenants

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// The kinds of tokens. The kind of a token follows the prefix "hg_".
const (
	OperatorToken = "op"
	TenantToken   = "tn"
)

const (
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	randomDigits = 43 // 256 bits in base 62
	crcDigits    = 6  // 32 bits in base 62
	tokenLength  = len("hg_xx_") + randomDigits + crcDigits
)

// NewToken returns a new random token. It consists of hg_, the kind, _, 256 random bits as 43
// base-62 digits, and a checksum. The checksum is the CRC-32 (IEEE) of all characters before it, as
// 6 base-62 digits. It makes it possible to reject a mistyped token without a lookup, and secret
// scanners can recognize tokens by it. The regular expression of a token is
// ^hg_(op|tn)_[0-9A-Za-z]{49}$.
func NewToken(kind string) string {
	var raw [32]byte
	rand.Read(raw[:]) // cannot fail: crypto/rand ends the program instead
	body := appendDigits([]byte("hg_"+kind+"_"), new(big.Int).SetBytes(raw[:]))
	return string(appendChecksum(body, string(body)))
}

// WellFormed reports whether a token has the form that NewToken returns and a correct checksum. It
// does not look up a key. It allocates no memory, because every request calls it.
func WellFormed(token string) bool {
	if len(token) != tokenLength || !strings.HasPrefix(token, "hg_") || token[5] != '_' {
		return false
	}
	const body = tokenLength - crcDigits
	var sum [crcDigits]byte
	appendChecksum(sum[:0], token[:body])
	return token[body:] == string(sum[:])
}

// HashToken returns the SHA-256 hash of a token. The store stores the hash and not the token. A
// slow hash function is not needed, because a token contains 256 random bits.
func HashToken(token string) [32]byte {
	var room [128]byte // large enough for every token, so that the bytes stay on the stack
	return sha256.Sum256(append(room[:0], token...))
}

// TokenHint returns the first and the last characters of a token, so that people can recognize the
// key. It returns so few characters that nobody can guess the rest. This is also true for the
// shorter tokens of customers.
func TokenHint(token string) string {
	switch {
	case len(token) < MinCustomerKey:
		return "…"
	case len(token) < 32:
		return token[:4] + "…" + token[len(token)-2:]
	}
	return token[:10] + "…" + token[len(token)-4:]
}

// appendChecksum appends the CRC-32 of body in base 62, most significant digit first.
func appendChecksum(b []byte, body string) []byte {
	sum := ^uint32(0)
	for i := range len(body) {
		sum = crc32.IEEETable[byte(sum)^body[i]] ^ sum>>8
	}
	sum = ^sum
	var out [crcDigits]byte
	for i := crcDigits - 1; i >= 0; i-- {
		out[i] = base62[sum%62]
		sum /= 62
	}
	return append(b, out[:]...)
}

// appendDigits appends a number below 2^256 as randomDigits digits in base 62, most significant
// digit first.
func appendDigits(b []byte, n *big.Int) []byte {
	var out [randomDigits]byte
	base, digit := big.NewInt(62), new(big.Int)
	for i := randomDigits - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return append(b, out[:]...)
}
