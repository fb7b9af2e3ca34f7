package views

// OperatorKeys are the keys that act for the operator.
type OperatorKeys struct {
	Tabs   []Tab
	Notice string
	Rows   []APIKey
	NewURL string // "" for those who may not make one
	Next   string // "" on the last page
	Empty  Empty
}

// A RoleTable is who may do what.
type RoleTable struct {
	Tabs  []Tab
	Roles []string
	Rows  []RoleRow
}

func (r RoleTable) columns() []Column {
	return columns(append(append([]string{"Action"}, r.Roles...), "Operator key", "Tenant key")...)
}

// A RoleRow is one action; May has the roles in their order.
type RoleRow struct {
	Words, Action          string
	May                    []bool
	OperatorKey, TenantKey string // the scope that is needed; "": no key may
}

// Kept is how long things are kept.
type Kept struct {
	Tabs []Tab
	Rows []KeptRow
}

// A KeptRow is one kind of thing.
type KeptRow struct{ What, Kept, Setting string }

// About is what runs here.
type About struct {
	Tabs     []Tab
	Facts    []AuditFact
	Licenses string // address of the licences of what is served with the pages
}
