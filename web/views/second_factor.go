package views

// A PasskeyForm is a form with which the script passkey.js creates or uses a passkey.
type PasskeyForm struct {
	Action  string
	Create  bool   // the form creates a passkey; otherwise it uses one
	Options string // what the browser needs, as JSON
	Fields  []Input
	Next    string // address to open after the sign-in; "" for the first page
	Button  string
	Wide    bool // the button is as wide as the form, as on the sign-in pages
	// Unavailable says why passkeys are not possible at this address. If it is not "", the form is
	// not shown.
	Unavailable string
}

// kind returns the value for the attribute data-passkey, which passkey.js reads.
func (f PasskeyForm) kind() string {
	if f.Create {
		return "create"
	}
	return "use"
}

// SecondStep is the second step of a sign-in.
type SecondStep struct {
	Email   string
	Code    Input
	HasCode bool // the person has an authenticator app or recovery codes
	Passkey *PasskeyForm
	Next    string
	// AppURL and PasskeyURL are the addresses of the forms with which a person without a second
	// factor adds one. They are "" if the person has a second factor.
	AppURL, PasskeyURL string
	Faults             []Fault
}

// AppSetup is the form that adds an authenticator app.
type AppSetup struct {
	Action     string
	QR         string // the QR code as a data URL
	Secret     string // the secret as the form sends it
	Typed      string // in groups, for people who type it
	Code, Name Input
	Next       string
	Back       Link
	Faults     []Fault
}

// PasskeySetup is the form that adds a passkey.
type PasskeySetup struct {
	Passkey PasskeyForm
	Back    Link
	Faults  []Fault
}

// SecondFactors is the page on which people change their second factors.
type SecondFactors struct {
	Rows        []FactorRow
	Codes       Number // unused recovery codes
	FewCodes    bool
	Required    bool
	HasPassword bool
	// Confirmed says that the visitor may change second factors now. Otherwise the page has a form
	// that asks for the password, and for a second factor if the visitor has one.
	Confirmed      bool
	Password, Code Input
	HasCode        bool
	Passkey        *PasskeyForm
	Faults         []Fault
	Notice         string
}

// A FactorRow is one second factor in a list.
type FactorRow struct {
	Kind, Name, RemoveURL string
	Added, Used           Moment
}

// NewCodes is the page that shows new recovery codes once.
type NewCodes struct {
	Codes []string
	Next  Link
}
