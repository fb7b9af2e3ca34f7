// Package secondfactor creates and verifies second factors for signing in: time-based one-time
// passwords (TOTP, RFC 6238), passkeys (WebAuthn), and recovery codes. It stores nothing and
// does not use the users of Headgate; package accounts stores what these functions return.
package secondfactor
