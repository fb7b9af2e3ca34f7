package views

// A PasskeyForm is a form that creates or uses a passkey with the script passkey.js.
type PasskeyForm struct {
	Action  string
	Create  bool   // it creates a passkey; otherwise it uses one
	Options string // what the browser needs, as JSON
	Fields  []Input
	Next    string // the page after the sign-in; "" for the first page
	Button  string
	Wide    bool // the button has the width of the form, as on the pages of a sign-in
	// Unavailable says why this address allows no passkeys. If it is not "", the form is not shown.
	Unavailable string
}

// kind returns the value of data-passkey, which passkey.js reads.
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
	// AppURL and PasskeyURL add the first second factor. They are "" if the person has one.
	AppURL, PasskeyURL string
	Faults             []Fault
}

// AppSetup is the form that adds an authenticator app.
type AppSetup struct {
	Action     string
	QR         string // the QR code as a data URL
	Secret     string // as the form sends it
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
	// Confirmed means that the visitor may change second factors now. Otherwise the page has a
	// form that asks for the password, and for the second factor if there is one.
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

// NewCodes shows new recovery codes once after they were made.
type NewCodes struct {
	Codes []string
	Next  Link
}
