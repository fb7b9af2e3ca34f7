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
	// TOTPStep is the time for which one code is valid.
	TOTPStep = 30 * time.Second
	// totpSkew is the number of steps by which the clock of the authenticator may differ.
	totpSkew = 1
	// secretBytes is the length of a TOTP secret: that of a SHA-1 hash, as RFC 4226 recommends.
	secretBytes = 20
	// qrPixels is the width and height of the image of a QR code.
	qrPixels = 240
)

// A TOTP is a secret that an authenticator app and Headgate share.
type TOTP struct {
	Secret string // in base32 without padding
	URI    string // the otpauth URI in the QR code
	QR     []byte // the QR code as PNG
}

// NewTOTP returns a new random secret for an account.
func NewTOTP(account string) (TOTP, error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: "Headgate", AccountName: account, SecretSize: secretBytes})
	if err != nil {
		return TOTP{}, fmt.Errorf("generate a TOTP secret: %w", err)
	}
	return described(key)
}

// KnownTOTP returns the TOTP of a secret that NewTOTP returned, to show it again. The error says
// that the secret is not one.
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

// ValidSecret reports whether a text has the form of a secret of NewTOTP.
func ValidSecret(secret string) bool {
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(secret)
	return err == nil && len(raw) == secretBytes
}

// TOTPCode returns the number of the step whose code is code. The step is the current one, the one
// before, or the one after it. It must be later than the step after, which makes a used code
// invalid. ok is false if there is no such step.
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
