package secondfactor

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"
)

// ChallengeLife is how long a browser can use or create a passkey after it has received the
// options.
const ChallengeLife = 5 * time.Minute

// ErrOrigin is the error if browsers do not allow passkeys at the address of the dashboard.
var ErrOrigin = errors.New("passkeys need https and a host name: browsers do not allow them at an IP address or over plain HTTP, " +
	"except at http://localhost")

// ErrPasskey is the error for a browser's response that is not valid for its challenge. Cause
// is for the log; people do not see it.
type ErrPasskey struct{ Cause error }

func (e *ErrPasskey) Error() string { return "the passkey was not accepted" }
func (e *ErrPasskey) Unwrap() error { return e.Cause }

// A Person is the owner of passkeys.
type Person struct {
	ID, Email, Name string
	Passkeys        [][]byte // the stored forms of the person's passkeys
}

// A Ceremony is the start of one creation or use of a passkey. Options is the JSON that the
// browser needs. State is what FinishCreate or FinishUse needs; the caller stores it on the
// server, and it must be used only once.
type Ceremony struct{ Options, State json.RawMessage }

// A NewPasskey is a passkey in the state after its creation or after its last use.
type NewPasskey struct {
	ID     []byte // ID of the credential, unique among all people
	Stored []byte
}

// Origin returns ErrOrigin if browsers do not allow passkeys at an address of the dashboard,
// such as https://limits.example.com.
func Origin(address string) error {
	_, err := relyingParty(address)
	return err
}

func relyingParty(address string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || net.ParseIP(u.Hostname()) != nil || u.Scheme != "https" && u.Hostname() != "localhost" {
		return nil, ErrOrigin
	}
	life := webauthn.TimeoutConfig{Enforce: true, Timeout: ChallengeLife, TimeoutUVD: ChallengeLife}
	w, err := webauthn.New(&webauthn.Config{
		RPID: u.Hostname(), RPDisplayName: "Headgate", RPOrigins: []string{u.Scheme + "://" + u.Host},
		AttestationPreference: protocol.PreferNoAttestation,
		Timeouts:              webauthn.TimeoutsConfig{Login: life, Registration: life},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOrigin, err)
	}
	return w, nil
}

// A person implements webauthn.User.
type person struct {
	Person
	credentials []webauthn.Credential
}

func (p person) WebAuthnID() []byte                         { return []byte(p.ID) }
func (p person) WebAuthnName() string                       { return p.Email }
func (p person) WebAuthnDisplayName() string                { return p.Name }
func (p person) WebAuthnCredentials() []webauthn.Credential { return p.credentials }

func parsed(p Person) (person, error) {
	u := person{Person: p}
	for _, stored := range p.Passkeys {
		var c webauthn.Credential
		if err := json.Unmarshal(stored, &c); err != nil {
			return u, fmt.Errorf("parse a stored passkey: %w", err)
		}
		u.credentials = append(u.credentials, c)
	}
	return u, nil
}

func ceremony(options any, state *webauthn.SessionData, err error) (Ceremony, error) {
	if err != nil {
		return Ceremony{}, fmt.Errorf("begin to use a passkey: %w", err)
	}
	var c Ceremony
	if c.Options, err = json.Marshal(options); err == nil {
		c.State, err = json.Marshal(state)
	}
	return c, err
}

// BeginCreate starts the creation of a passkey for a person. address is the URL of the dashboard.
func BeginCreate(address string, p Person) (Ceremony, error) {
	w, u, err := parties(address, p)
	if err != nil {
		return Ceremony{}, err
	}
	options, state, err := w.BeginRegistration(u,
		webauthn.WithExclusions(webauthn.Credentials(u.credentials).CredentialDescriptors()),
		webauthn.WithAuthenticatorSelection(protocol.AuthenticatorSelection{
			ResidentKey: protocol.ResidentKeyRequirementDiscouraged, UserVerification: protocol.VerificationPreferred,
		}))
	return ceremony(options, state, err)
}

// FinishCreate verifies the browser's response and returns the new passkey. If the response is
// invalid, the error is *ErrPasskey.
func FinishCreate(address string, p Person, state, response []byte) (NewPasskey, error) {
	return finish(address, p, state, func(w *webauthn.WebAuthn, u person, session webauthn.SessionData) (*webauthn.Credential, error) {
		data, err := protocol.ParseCredentialCreationResponseBytes(response)
		if err != nil {
			return nil, err
		}
		return w.CreateCredential(u, session, data)
	})
}

// BeginUse starts the verification of one of a person's passkeys. address is the URL of the
// dashboard.
func BeginUse(address string, p Person) (Ceremony, error) {
	w, u, err := parties(address, p)
	if err != nil {
		return Ceremony{}, err
	}
	options, state, err := w.BeginLogin(u, webauthn.WithUserVerification(protocol.VerificationPreferred))
	return ceremony(options, state, err)
}

// FinishUse verifies the browser's response. It returns the passkey that was used, with its new
// stored form. The error is *ErrPasskey if the response is invalid, or if the counter of the
// passkey shows that a copy of the passkey exists.
func FinishUse(address string, p Person, state, response []byte) (NewPasskey, error) {
	return finish(address, p, state, func(w *webauthn.WebAuthn, u person, session webauthn.SessionData) (*webauthn.Credential, error) {
		data, err := protocol.ParseCredentialRequestResponseBytes(response)
		if err != nil {
			return nil, err
		}
		c, err := w.ValidateLogin(u, session, data)
		if err == nil && c.Authenticator.CloneWarning {
			err = errors.New("the counter of the passkey did not increase: there may be a copy of it")
		}
		return c, err
	})
}

// parties returns the two parties of a ceremony: w is this server with its dashboard at address,
// and u is the person with the stored passkeys.
func parties(address string, p Person) (w *webauthn.WebAuthn, u person, err error) {
	if w, err = relyingParty(address); err == nil {
		u, err = parsed(p)
	}
	return w, u, err
}

// finish calls verify with the parties and the decoded state of a ceremony. If verify returns
// an error, the error of finish is an *ErrPasskey.
func finish(address string, p Person, state []byte,
	verify func(*webauthn.WebAuthn, person, webauthn.SessionData) (*webauthn.Credential, error),
) (NewPasskey, error) {
	w, u, err := parties(address, p)
	if err != nil {
		return NewPasskey{}, err
	}
	var session webauthn.SessionData
	if err := json.Unmarshal(state, &session); err != nil {
		return NewPasskey{}, fmt.Errorf("parse the state of a passkey: %w", err)
	}
	c, err := verify(w, u, session)
	if err != nil {
		return NewPasskey{}, &ErrPasskey{err}
	}
	stored, err := json.Marshal(c)
	return NewPasskey{ID: c.ID, Stored: stored}, err
}
