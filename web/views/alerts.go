package views

// An AlertHead is the navigation that all pages about alerts have.
type AlertHead struct {
	OfTenant bool
	Tenant   TenantHead // head of the tenant's pages
	Pages    []Tab
}

// Alerts is the first page about alerts.
type Alerts struct {
	AlertHead
	Notice   string
	Open     []AlertRow
	Past     []AlertRow
	Next     string // address of the next page; "" on the last page
	RulesURL string
	Empty    Empty // Title is "" if there are rules
}

// An AlertRow is one alert.
type AlertRow struct {
	URL, Name    string
	Figure       string // "The 429 rate of tenant acme in the last 5 min"
	Value, Peak  string // with units
	Threshold    string // "20% or more"
	Detail       string
	Open         bool
	Began, Ended Moment
}

// An Alert is the page about one alert.
type Alert struct {
	AlertHead
	AlertRow
	Links    []Link
	Messages []AlertMessageRow
}

// AlertRules is the list of rules.
type AlertRules struct {
	AlertHead
	List[AlertRuleRow]
}

// An AlertRuleRow is a rule in the list, with its state.
type AlertRuleRow struct {
	URL, Name, Figure string
	Begins            string // "Begins at 20% or more for 2m, ends below 10%"
	Status, Tone      string
	Since             Moment
	Value             string // the newest figure, or ""
	Detail            string
	Muted             Moment   // the end of the time without messages
	Channels          []string // names
}

// AlertTemplates is the page with the templates from which a visitor creates rules.
type AlertTemplates struct {
	AlertHead
	Faults        []Fault
	Action, Back  string
	Templates     []AlertTemplate
	Rules         Checks // the templates that need no input
	Channels      Checks
	NewChannelURL string
}

// An AlertTemplate is a link to the form of a new rule, with a summary of the template.
type AlertTemplate struct{ Name, Summary, Begins, URL string }

// An AlertRuleForm is the form for a rule. The field Exists, and the fields after it, are
// only set for a rule that exists already.
type AlertRuleForm struct {
	AlertHead
	Title, Figure, Button string
	Faults                []Fault
	Action, Back          string
	Metric, From, Version string // hidden fields
	Fields                []Input
	Each                  Checks // whether the rule watches each tenant; without options if the metric does not permit this
	Channels              Checks
	NewChannelURL         string
	Enabled               Checks
	Exists, MayWrite      bool
	Notice                string
	Row                   AlertRuleRow
	Mute                  Ending
	Past                  []AlertRow
}

// Field returns the field that has this name, or nil.
func (f *AlertRuleForm) Field(name string) *Input {
	for i := range f.Fields {
		if f.Fields[i].Name == name {
			return &f.Fields[i]
		}
	}
	return nil
}

// AlertChannels is the list of channels.
type AlertChannels struct {
	AlertHead
	List[AlertChannelRow]
}

// An AlertChannelRow is a channel in the list.
type AlertChannelRow struct {
	URL, Name, Kind, Address string
	Created                  Moment
	TestURL                  string // "" if the visitor must not
}

// An AlertChannelForm is the form for a channel. The field Exists, and the fields after it,
// are only set for a channel that exists already.
type AlertChannelForm struct {
	AlertHead
	Title, Button     string
	Faults            []Fault
	Action, Back      string
	Version           string
	NoMail, MailGuide string // why the form offers no e-mail, and the address of the guide about it; or ""
	Kind              Choice
	Fields            []Input
	Exists, MayWrite  bool
	Notice            string
	KindName, Address string
	HasSecret         bool
	Former            Moment // the end of the former secret
	Messages          []AlertMessageRow
}

// An AlertSecret shows the secret of a webhook once.
type AlertSecret struct {
	AlertHead
	Name, Secret, Back string
	Rotated, MayTest   bool
	Former             Moment
}

// AlertMessages is the list of messages.
type AlertMessages struct {
	AlertHead
	List[AlertMessageRow]
	Base   string
	Status Select
}

// An AlertMessageRow is a message in the list of messages.
type AlertMessageRow struct {
	URL, Event, Channel, Status, Tone string
	Attempts, Answer                  string
	Created, Due                      Moment
}

// An AlertMessage is the page about one message.
type AlertMessage struct {
	AlertHead
	AlertMessageRow
	ID, Body, Notice     string
	ChannelURL, AlertURL string
	RepeatURL            string // "" if the visitor must not
	Log                  []AlertAttempt
}

// An AlertAttempt is one attempt to send a message.
type AlertAttempt struct {
	At     Moment
	Answer string
}

// AlertMaintenance is the list of maintenance windows.
type AlertMaintenance struct {
	AlertHead
	List[AlertMaintenanceRow]
}

// An AlertMaintenanceRow is a maintenance window.
type AlertMaintenanceRow struct {
	Name, Status, Tone string
	When               string // "26 November 2026, 14:00 to 15:00 UTC"
	Repeat             string
	Rules              string // "all rules", or their names
	DeleteURL          string // "" if the visitor must not
}

// An AlertMaintenanceForm creates a maintenance window.
type AlertMaintenanceForm struct {
	AlertHead
	Faults       []Fault
	Action, Back string
	Name         Input
	Starts, Ends Input
	Repeat       Select
	Rules        Checks // none checked: all
}
