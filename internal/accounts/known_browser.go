package accounts

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
)

// After a sign-in with a password, the browser gets a value that identifies the browser in later
// sign-ins. The value consists of a random nonce, and an HMAC over the nonce and the user ID. The
// key of the HMAC is derived from the stored password hash. Therefore every node can verify the
// value, and the value becomes invalid when the password changes.

const nonceSize = 16

// RememberBrowser returns a value for the browser in which the user u has just signed in with a
// password. before is the value that the browser sent, or "". If before is valid for this user,
// the new value has the same nonce. If the user has no password, the result is "".
func (p *People) RememberBrowser(u User, before string) string {
	if u.Password == "" {
		return ""
	}
	nonce, _ := splitBrowser(before)
	if !remembers(u, before) {
		nonce = make([]byte, nonceSize)
		rand.Read(nonce) // rand.Read never returns an error
	}
	return base64.RawURLEncoding.EncodeToString(append(nonce, browserCode(u, nonce)...))
}

// remembers reports whether RememberBrowser has returned value for this user and the user's
// current password.
func remembers(u User, value string) bool {
	nonce, code := splitBrowser(value)
	return nonce != nil && u.Password != "" && hmac.Equal(code, browserCode(u, nonce))
}

// splitBrowser returns the nonce and the HMAC that a value of RememberBrowser contains. If the
// value is malformed, both are nil.
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
