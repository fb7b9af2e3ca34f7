package secondfactor

import (
	"bytes"
	"crypto/hmac"
	"encoding/base32"
	"fmt"
	"image/png"
	"net/url"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"
)

const (
	// TOTPStep is how long one code is valid: the authenticator app shows a new code after this
	// time.
	TOTPStep = 30 * time.Second
	// totpSkew is the number of steps by which the clock of the authenticator app may differ from
	// the clock of the server.
	totpSkew = 1
	// secretBytes is the length of a TOTP secret in bytes: the length of a SHA-1 hash, as RFC
	// 4226 recommends.
	secretBytes = 20
	// qrPixels is the width and the height of the image of a QR code.
	qrPixels = 240
)

// A TOTP is a secret that an authenticator app and Headgate share.
type TOTP struct {
	Secret string // in base32 without padding
	URI    string // the otpauth URI, which the QR code contains
	QR     []byte // the QR code as PNG
}

// NewTOTP returns a new random secret. account is the name that the app shows for it.
func NewTOTP(account string) (TOTP, error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: "Headgate", AccountName: account, SecretSize: secretBytes})
	if err != nil {
		return TOTP{}, fmt.Errorf("generate a TOTP secret: %w", err)
	}
	return described(key)
}

// KnownTOTP returns the TOTP for a secret that NewTOTP returned before, so that it can be shown
// again. It returns an error if secret does not have the form of such a secret.
func KnownTOTP(secret, account string) (TOTP, error) {
	if !ValidSecret(secret) {
		return TOTP{}, fmt.Errorf("the TOTP secret is not %d bytes in base32", secretBytes)
	}
	key, err := otp.NewKeyFromURL((&url.URL{
		Scheme: "otpauth", Host: "totp", Path: "/Headgate:" + account,
		RawQuery: url.Values{"secret": {secret}, "issuer": {"Headgate"}}.Encode(),
	}).String())
	if err != nil {
		return TOTP{}, fmt.Errorf("describe a TOTP secret: %w", err)
	}
	return described(key)
}

func described(key *otp.Key) (TOTP, error) {
	image, err := key.Image(qrPixels, qrPixels)
	if err != nil {
		return TOTP{}, fmt.Errorf("draw a QR code: %w", err)
	}
	var qr bytes.Buffer
	if err := png.Encode(&qr, image); err != nil {
		return TOTP{}, fmt.Errorf("encode a QR code: %w", err)
	}
	return TOTP{Secret: key.Secret(), URI: key.URL(), QR: qr.Bytes()}, nil
}

// ValidSecret reports whether a text has the form of TOTP.Secret.
func ValidSecret(secret string) bool {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	return err == nil && len(raw) == secretBytes
}

// TOTPCode returns the number of the step to which code belongs. This can be the current step, the
// step before it, or the step after it. TOTPCode ignores steps up to the step after, so that a code
// cannot be used again. ok is false if code belongs to none of these steps.
func TOTPCode(secret, code string, now time.Time, after int64) (step int64, ok bool) {
	code = Digits(code)
	current := now.Unix() / int64(TOTPStep/time.Second)
	for step := max(current-totpSkew, after+1, 0); step <= current+totpSkew; step++ {
		want, err := hotp.GenerateCode(secret, uint64(step))
		if err == nil && hmac.Equal([]byte(want), []byte(code)) {
			return step, true
		}
	}
	return 0, false
}

// Digits returns a code without the spaces that people type between its digits.
func Digits(code string) string { return strings.Join(strings.Fields(code), "") }
