package accounts

// ValidFirstOwner says what is wrong with the e-mail address or the password of
// a first owner that a setting names, before anything is opened; Invalid.
func ValidFirstOwner(email, password string) error {
	return NewPerson{Email: email, Name: firstOwnerName, Password: password}.validate()
}

// firstOwnerName is what somebody is called whom a setting makes, until they
// change it.
const firstOwnerName = "Owner"
