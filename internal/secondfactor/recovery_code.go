package secondfactor

import (
	"crypto/rand"
	"crypto/sha256"
	"strings"
)

// RecoveryCodes is the number of recovery codes of one person.
const RecoveryCodes = 10

const (
	recoveryLetters = 16 // a letter has 5 random bits, so a code has 80 random bits
	recoveryGroup   = 4
	// recoveryAlphabet contains no letters that look like a digit or like another letter.
	recoveryAlphabet = "abcdefghijkmnpqrstuvwxyz23456789"
)

// NewRecoveryCodes returns new recovery codes and their hashes. Only the hashes are stored. A
// hash needs neither a salt nor a high cost, because a code has 80 random bits.
func NewRecoveryCodes() (codes []string, hashes [][32]byte) {
	for range RecoveryCodes {
		var raw [recoveryLetters]byte
		rand.Read(raw[:]) // rand.Read never returns an error
		var code strings.Builder
		for i, b := range raw {
			if i > 0 && i%recoveryGroup == 0 {
				code.WriteByte('-')
			}
			code.WriteByte(recoveryAlphabet[b%32])
		}
		hash, _ := RecoveryHash(code.String())
		codes, hashes = append(codes, code.String()), append(hashes, hash)
	}
	return codes, hashes
}

// RecoveryHash returns the hash of a recovery code that a person typed. Upper and lower case,
// hyphens and spaces make no difference. ok is false if the text cannot be a recovery code.
func RecoveryHash(code string) (hash [32]byte, ok bool) {
	code = strings.NewReplacer("-", "", " ", "").Replace(strings.ToLower(strings.TrimSpace(code)))
	if len(code) != recoveryLetters || strings.Trim(code, recoveryAlphabet) != "" {
		return hash, false
	}
	return sha256.Sum256([]byte("headgate recovery code\x00" + code)), true
}
