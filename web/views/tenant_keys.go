package views

// Keys is the list of the keys of a tenant, or of the operator.
type Keys struct {
	List[APIKey]
	Title, NewTitle, Lead string
}

// An APIKey is one API key in a list. Headgate does not store the token of the key.
type APIKey struct {
	Name, Hint           string
	Scopes               []string
	Created, Expires     Moment
	Used                 Moment // the last use
	CreatedBy            string // the key that created this key, such as "the key deploy"; "" for none
	Status, Tone         string // "Active", "Ends", "Revoked", "Expired"
	Ends                 Moment // end of a key that was rotated
	RotateURL, RevokeURL string // "" when that cannot be done
}

// A KeyForm makes a key.
type KeyForm struct {
	Head         TenantHead
	Title        string
	Faults       []Fault
	Name         Input
	Scopes       Checks
	MaxCost      Input
	Peek         Checks
	AllowedIPs   Input
	Token        Input // field for an existing token; without a name for keys of the operator
	End          Ending
	Action, Back string
}

// A KeyMade is the page that shows the token of a new key. No other page shows the
// token.
type KeyMade struct {
	Head        TenantHead
	Title, Lead string
	Name, Token string
	Curl        string // "" if the key does not have the scope check
	Back        string
	OldEnds     Moment // after a rotation, the time at which the old key ends
	Rotated     bool
}
