package accounts

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// A browser in which a person signed in keeps a value that proves it: a random nonce, and an HMAC over the nonce and
// the user ID. The HMAC's key is derived from the stored password hash. So every node can verify the value, and the
// value becomes invalid when the password changes.

const nonceSize = 16

// RememberBrowser returns the value for the browser of a user who has just signed in with a password. before is the
// value that the browser sent. If before is valid for the user, the new value has the same nonce. The result is ""
// for a user without a password.
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

// remembers reports whether the value was made for the user while the user had the current password.
func remembers(u User, value string) bool {
	nonce, code := splitBrowser(value)
	return nonce != nil && u.Password != "" && hmac.Equal(code, browserCode(u, nonce))
}

// splitBrowser returns the nonce and the HMAC of a value, or nil for a malformed value.
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
