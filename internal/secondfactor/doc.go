// Package secondfactor creates and verifies second factors of a sign-in: time-based one-time
// passwords (TOTP, RFC 6238), passkeys (WebAuthn), and recovery codes. It stores nothing and knows
// no users; package accounts stores what these functions return.
package secondfactor
