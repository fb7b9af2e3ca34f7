package views

// Keys are the API keys of a tenant.
type Keys struct {
	Head   TenantHead
	Notice string
	Rows   []APIKey
	NewURL string // "" for those who may not make one
	Next   string // "" on the last page
	Empty  Empty
}

// A APIKey is one key; its token is nowhere.
type APIKey struct {
	Name, Hint           string
	Scopes               []string
	Created, Expires     Moment
	Status, Tone         string // "Active", "Ends", "Revoked", "Expired"
	Ends                 Moment // of a rotated one
	RotateURL, RevokeURL string // "" when that cannot be done
}

// A KeyForm makes a key.
type KeyForm struct {
	Head         TenantHead
	Faults       []Fault
	Name         Input
	Scopes       Checks
	End          Ending
	Action, Back string
}

// An Ending is the field of when something ends: a length of time, or an instant.
type Ending struct {
	Life  Select
	Until Input
}

// A KeyMade shows a key's token, this once.
type KeyMade struct {
	Head        TenantHead
	Title, Lead string
	Name, Token string
	Curl        string // "" when the key may not check
	Back        string
	OldEnds     Moment // of the key that it follows
	Rotated     bool
}
