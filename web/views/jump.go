package views

// A JumpGroup is places of one sort.
type JumpGroup struct {
	Title, Icon string
	Links       []Link
}
