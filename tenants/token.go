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
	body := "hg_" + kind + "_" + digits(new(big.Int).SetBytes(raw[:]), randomDigits)
	return body + checksum(body)
}

// WellFormed reports whether token has the form and the checksum of NewToken.
// It says nothing about validity.
func WellFormed(token string) bool {
	if len(token) != tokenLength || !strings.HasPrefix(token, "hg_") || token[5] != '_' {
		return false
	}
	body := token[:tokenLength-crcDigits]
	return token[tokenLength-crcDigits:] == checksum(body)
}

// HashToken is what is stored of a token. A random 256-bit secret needs no
// slow hash.
func HashToken(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// TokenHint is the part of a token that may be shown: enough to recognise it,
// far too little to guess it.
func TokenHint(token string) string {
	if len(token) < 16 {
		return "…"
	}
	return token[:10] + "…" + token[len(token)-4:]
}

func checksum(body string) string {
	return digits(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), crcDigits)
}

func digits(n *big.Int, width int) string {
	out := make([]byte, width)
	base, digit := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = base62[digit.Int64()]
	}
	return string(out)
}
