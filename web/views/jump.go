package views

// A JumpGroup contains the search results of one kind, such as tenants or plans.
type JumpGroup struct {
	Title, Icon string
	Links       []Link
}
