package accounts

// ValidFirstOwner checks the e-mail address and the password of the first owner
// from the settings, before the database is opened; Invalid.
func ValidFirstOwner(email, password string) error {
	return NewPerson{Email: email, Name: firstOwnerName, Password: password}.validate()
}

// firstOwnerName is the name of the first owner from the settings, until they
// change it.
const firstOwnerName = "Owner"
