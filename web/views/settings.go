package views

// A RoleTable shows which actions each role and each key may perform.
type RoleTable struct {
	Tabs  []Tab
	Roles []string
	Rows  []RoleRow
}

func (r RoleTable) columns() []Column {
	return columns(append(append([]string{"Action"}, r.Roles...), "Operator key", "Tenant key")...)
}

// A RoleRow is one action in the table of roles. May says, for each role, whether the role
// may perform the action.
type RoleRow struct {
	Words, Action          string
	May                    []bool
	OperatorKey, TenantKey string // the scope with which a key may perform the action; "" if no key may
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
