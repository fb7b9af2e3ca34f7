package accounts

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// A browser that signed a person in keeps a value that proves it: a random nonce, and
// a code over the nonce and the user's id. The key of the code is made from the stored
// hash of the password, so that all nodes know it, and a new password ends the value.

const nonceSize = 16

// RememberBrowser returns the value that the browser of a user keeps, who has just
// signed in with a password. before is the value that the browser sent: its nonce
// stays. "" for a user without a password.
func (p *People) RememberBrowser(u User, before string) string {
	if u.Password == "" {
		return ""
	}
	nonce, _ := splitBrowser(before)
	if !remembers(u, before) {
		nonce = make([]byte, nonceSize)
		rand.Read(nonce) // never fails: crypto/rand ends the program instead
	}
	return base64.RawURLEncoding.EncodeToString(append(nonce, browserCode(u, nonce)...))
}

// remembers reports whether a value was made for the user, with this password.
func remembers(u User, value string) bool {
	nonce, code := splitBrowser(value)
	return nonce != nil && u.Password != "" && hmac.Equal(code, browserCode(u, nonce))
}

// splitBrowser returns the parts of a value; nil for an impossible one.
func splitBrowser(value string) (nonce, code []byte) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || len(raw) != nonceSize+sha256.Size {
		return nil, nil
	}
	return raw[:nonceSize:nonceSize], raw[nonceSize:]
}

func browserCode(u User, nonce []byte) []byte {
	key := sha256.Sum256([]byte("headgate browser\x00" + u.Password))
	code := hmac.New(sha256.New, key[:])
	code.Write(nonce)
	code.Write([]byte(u.ID))
	return code.Sum(nil)
}
