package secondfactor

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// The first byte of a stored secret says how it is stored.
const (
	formPlain  = 0
	formSealed = 1
)

// MinSealKey is the minimum length of the text from which NewSealer derives its key.
const MinSealKey = 32

// A Sealer encrypts TOTP secrets for the database. The zero value stores them unencrypted.
type Sealer struct {
	box cipher.AEAD // encrypts and decrypts
	old cipher.AEAD // only decrypts; nil for none
}

// NewSealer returns a Sealer whose key is derived from a text. For "" it returns the zero Sealer.
func NewSealer(text string) (Sealer, error) {
	if text == "" {
		return Sealer{}, nil
	}
	if len(text) < MinSealKey {
		return Sealer{}, fmt.Errorf("must have at least %d characters", MinSealKey)
	}
	key, err := hkdf.Key(sha256.New, []byte(text), nil, "headgate second factors", 32)
	if err != nil {
		return Sealer{}, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Sealer{}, err
	}
	box, err := cipher.NewGCM(block)
	return Sealer{box: box}, err
}

// WithOld returns a Sealer that also opens what the Sealer old has sealed.
func (s Sealer) WithOld(old Sealer) Sealer {
	s.old = old.box
	return s
}

// Reseal returns the form in which a stored secret must be stored now: the same if it is sealed with
// the key of s, or if s has none. The error is ErrSealed if Open cannot open the secret.
func (s Sealer) Reseal(stored []byte, owner string) ([]byte, error) {
	secret, err := s.Open(stored, owner)
	if err != nil || s.box == nil {
		return stored, err
	}
	if _, err := (Sealer{box: s.box}).Open(stored, owner); err == nil && stored[0] == formSealed {
		return stored, nil
	}
	return s.Seal(secret, owner), nil
}

// Seal returns the stored form of a secret. Open requires the same owner, so that a row that was
// copied to another person is invalid.
func (s Sealer) Seal(secret, owner string) []byte {
	if s.box == nil {
		return append([]byte{formPlain}, secret...)
	}
	nonce := make([]byte, s.box.NonceSize())
	rand.Read(nonce) // never fails: crypto/rand ends the program instead
	return s.box.Seal(append([]byte{formSealed}, nonce...), nonce, []byte(secret), []byte(owner))
}

// ErrSealed is the error for a secret that was sealed with another key.
var ErrSealed = errors.New("the secret in the database was encrypted with another key")

// Open returns the secret in a stored form. A secret that was stored without encryption stays
// valid after a key is set.
func (s Sealer) Open(stored []byte, owner string) (string, error) {
	if len(stored) > 0 && stored[0] == formPlain {
		return string(stored[1:]), nil
	}
	for _, box := range []cipher.AEAD{s.box, s.old} {
		if box == nil || len(stored) < 1+box.NonceSize() || stored[0] != formSealed {
			continue
		}
		nonce, text := stored[1:1+box.NonceSize()], stored[1+box.NonceSize():]
		if secret, err := box.Open(nil, nonce, text, []byte(owner)); err == nil {
			return string(secret), nil
		}
	}
	return "", ErrSealed
}
