package views

// Keys are the keys of a tenant or of the operator.
type Keys struct {
	List[APIKey]
	Title, NewTitle, Lead string
}

// An APIKey is one API key in a list. Its token is not stored.
type APIKey struct {
	Name, Hint           string
	Scopes               []string
	Created, Expires     Moment
	Used                 Moment // the last use
	CreatedBy            string // the key that created it, like "the key deploy"; "" for none
	Status, Tone         string // "Active", "Ends", "Revoked", "Expired"
	Ends                 Moment // of a rotated one
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
	Token        Input // without a name for keys of the operator
	End          Ending
	Action, Back string
}

// A KeyMade shows the token of a new key. It is the only page that shows the token.
type KeyMade struct {
	Head        TenantHead
	Title, Lead string
	Name, Token string
	Curl        string // "" if the key lacks the scope check
	Back        string
	OldEnds     Moment // end of the old key after a rotation
	Rotated     bool
}
