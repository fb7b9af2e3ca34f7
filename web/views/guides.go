package views

// A Guide is one guide of docs/.
type Guide struct {
	Title string
	HTML  string // HTML of the whole guide, from a file in the binary
}
