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

// The values of the first byte of a stored secret, which says whether the secret is encrypted.
const (
	formPlain  = 0
	formSealed = 1
)

// MinSealKey is the minimum length of the text from which NewSealer derives a key, in bytes.
const MinSealKey = 32

// A Sealer encrypts TOTP secrets for the database. The zero value stores them unencrypted.
type Sealer struct {
	box cipher.AEAD // encrypts and decrypts
	old cipher.AEAD // only decrypts; nil for none
}

// NewSealer returns a Sealer whose key is derived from text. If text is "", it returns the zero
// Sealer, which does not encrypt.
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

// WithOld returns a Sealer that can also decrypt secrets that the Sealer old has encrypted.
func (s Sealer) WithOld(old Sealer) Sealer {
	s.old = old.box
	return s
}

// Reseal returns the new stored form of a stored secret. If s has a key and the secret is not
// encrypted with this key, the new form is encrypted with it. Otherwise it is the old form. The
// error is ErrSealed if Open cannot open the secret.
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

// Seal returns the stored form of a secret. Open accepts this form only with the same owner. A copy
// of the secret in the row of another person is therefore invalid.
func (s Sealer) Seal(secret, owner string) []byte {
	if s.box == nil {
		return append([]byte{formPlain}, secret...)
	}
	nonce := make([]byte, s.box.NonceSize())
	rand.Read(nonce) // rand.Read never returns an error
	return s.box.Seal(append([]byte{formSealed}, nonce...), nonce, []byte(secret), []byte(owner))
}

// ErrSealed is the error for a stored secret that cannot be decrypted with the key of the
// Sealer.
var ErrSealed = errors.New("the secret in the database was encrypted with another key")

// Open returns the secret in a stored form. If the secret was stored without encryption, Open
// returns it even if the Sealer now has a key.
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
