package views

// A Traffic is what was decided in a time: of all tenants together, or of one,
// one policy or one route. Parts that cannot be told of it are left out.
type Traffic struct {
	// Empty says what to do when nothing was decided; nil: something was, and the
	// rest is filled in.
	Empty *Empty
	Tiles []Tile
	// Requests are the decisions over time, Rate those that limits refused, in
	// percent.
	Requests, Rate Chart
	// Limited and Allowed are the top keys; nil: not of this view.
	Limited, Allowed *KeyTable
	Routes           *RouteTable
	RetryAfter       *Bars
	// Latency is how long the limiter took, Split who answered.
	Latency *Chart
	Split   Chart
	Tenants *TenantTable
	// Note says what is left out, and why; "": nothing is.
	Note string
}

// A KeyTable ranks the keys that policies count by.
type KeyTable struct {
	ID, Title, Summary string
	CountLabel         string
	Rows               []KeyRow
	Tone               string // of the bars
	Tenants            bool   // rows name their tenant
	Empty              string
}

// A KeyRow is one key of a ranking.
type KeyRow struct {
	ID     string // of the row's link, the same for the same key
	Policy string
	Parts  []KeyPart
	// Redacted: the values are hashes.
	Redacted          bool
	Tenant, TenantURL string
	// URL is the key's page, DenialsURL its refusals; "": there are none.
	URL, DenialsURL string
	Count           Number // Exact says what the true number is between
	N, Most         int64  // for the bar
}

// A KeyPart is one of the values that make a key.
type KeyPart struct {
	Name, Value string
	Missing     bool // it was not sent
}

// Short is a value of a hash, shortened for the eye.
func (k KeyRow) short(value string) string {
	const enough = 12
	if k.Redacted && len(value) > enough {
		return value[:enough] + "…"
	}
	return value
}

// A RouteTable is a heat map of routes.
type RouteTable struct {
	ID, Title, Summary string
	Rows               []RouteRow
	// Begin and End are of the strips, for the eye.
	Begin, End string
	More       bool
	Empty      string
}

// A RouteRow is one route.
type RouteRow struct {
	ID, Name, URL, DenialsURL string
	Total, Limited, Rate      Number
	Strip                     Strip // without cells: beyond the first ten
}

// A TenantTable ranks tenants by what limits refuse of their requests.
type TenantTable struct {
	ID, Title, Summary string
	Rows               []TenantRow
	Empty              string
}

// A TenantRow is one tenant.
type TenantRow struct {
	ID, Name, URL, DenialsURL string
	Requests, Limited, Rate   Number
	N, Most                   int64 // for the bar
}

// A Chip is a filter that is on.
type Chip struct {
	Name, Value string
	RemoveURL   string
}

// A FilterField is one field of a form that narrows a page.
type FilterField struct {
	Name, Label, Value, Placeholder, Error string
	Options                                []Option // a choice; none: a text
	Check                                  bool     // a box to tick: Value is "1" when it is
	List                                   []string // suggestions for a text
}

func (f FilterField) id() string     { return "filter-" + f.Name }
func (f FilterField) listID() string { return f.id() + "-list" }

func (f FilterField) formField() FormField {
	return FormField{Name: f.id(), Label: f.Label, Error: f.Error}
}

// A Filters is the form that narrows a page, and what narrows it now.
type Filters struct {
	Action   string
	Fields   []FilterField
	Hidden   []Hidden
	Chips    []Chip
	ClearURL string
}

// Open: the form is shown without being asked for, as something in it is wrong.
func (f Filters) open() bool {
	for _, field := range f.Fields {
		if field.Error != "" {
			return true
		}
	}
	return false
}

// An Overview is the first page of the operator's people.
type Overview struct {
	Lead    string
	Ranges  Ranges
	Filters Filters
	Traffic Traffic
}

// Between words what is known of a number: "12,300 to 12,340".
func Between(low, high int64) string {
	if low >= high {
		return grouped(high)
	}
	return grouped(max(0, low)) + " to " + grouped(high)
}
