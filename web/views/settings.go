package views

// A RoleTable shows what each role and key may do.
type RoleTable struct {
	Tabs  []Tab
	Roles []string
	Rows  []RoleRow
}

func (r RoleTable) columns() []Column {
	return columns(append(append([]string{"Action"}, r.Roles...), "Operator key", "Tenant key")...)
}

// A RoleRow is one action in the table of roles. May says for each role whether it may do the
// action.
type RoleRow struct {
	Words, Action          string
	May                    []bool
	OperatorKey, TenantKey string // the scope that a key needs; "" if no key may do the action
}

// Kept is how long data are kept.
type Kept struct {
	Tabs []Tab
	Rows []KeptRow
}

// A KeptRow is one kind of data.
type KeptRow struct{ What, Kept, Setting string }

// About describes the binary.
type About struct {
	Tabs     []Tab
	Facts    AuditFacts
	Licenses string // address of the licenses of embedded files
}
