package tenants

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// Kinds of token, the word between "hg_" and the random part.
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

// NewToken makes a secret: hg_, the kind, _, 256 random bits in 43 base-62
// digits, and 6 base-62 digits of CRC-32 (IEEE) over all before them, so that
// a typing error is known without a look-up and scanners can find tokens. The
// regular expression is ^hg_(op|tn)_[0-9A-Za-z]{49}$.
func NewToken(kind string) string {
	var raw [32]byte
	rand.Read(raw[:]) // never fails: crypto/rand ends the program instead
	body := appendDigits([]byte("hg_"+kind+"_"), new(big.Int).SetBytes(raw[:]))
	return string(appendChecksum(body, string(body)))
}

// WellFormed reports whether token has the form and the checksum of NewToken.
// It says nothing about validity. Every request asks it, and it allocates
// nothing.
func WellFormed(token string) bool {
	if len(token) != tokenLength || !strings.HasPrefix(token, "hg_") || token[5] != '_' {
		return false
	}
	const body = tokenLength - crcDigits
	var sum [crcDigits]byte
	appendChecksum(sum[:0], token[:body])
	return token[body:] == string(sum[:])
}

// HashToken is what is stored of a token. A random 256-bit secret needs no
// slow hash.
func HashToken(token string) [32]byte {
	var room [128]byte // enough for every token: the bytes stay on the stack
	return sha256.Sum256(append(room[:0], token...))
}

// TokenHint is the part of a token that may be shown: enough to recognise it,
// far too little to guess it.
func TokenHint(token string) string {
	if len(token) < 16 {
		return "…"
	}
	return token[:10] + "…" + token[len(token)-4:]
}

// appendChecksum appends the CRC-32 of body, most significant digit first.
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

// appendDigits appends the lowest randomDigits of n, a number of 256 bits, most
// significant first.
func appendDigits(b []byte, n *big.Int) []byte {
	var out [randomDigits]byte
	base, digit := big.NewInt(62), new(big.Int)
	for i := randomDigits - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return append(b, out[:]...)
}
