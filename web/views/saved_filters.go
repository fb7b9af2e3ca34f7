package views

// SavedFilters has the saved filters of a page. The filter bar of the page shows them, and so does
// the page that manages them.
type SavedFilters struct {
	Tabs   []Tab
	Title  string // title of the page with the filters
	Notice string
	Faults []Fault
	Rows   []SavedFilter
	// Action is the address of the form that saves a filter. The page that manages filters has the
	// same address. Query has the parameters of the present filter.
	Action, Query string
	Name          Input
	Shared        bool
	MaySave       bool
}

// A SavedFilter is one saved filter.
type SavedFilter struct {
	ID, Name, URL string
	Detail        string // the parameters of the page, or ""
	Shared, Own   bool
	Current       bool   // the page shows it now
	Action        string // address of the form that changes the filter
	MayDelete     bool
}
