package accounts

import (
	_ "embed"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// The rules for new passwords.
const (
	minPassword      = 12   // characters
	maxPassword      = 128  // characters
	maxPasswordBytes = 1024 // maximum number of bytes that verify hashes; a valid password has at most 512 bytes

	leastDifferent = 5 // minimum number of different characters
	// minimum number of characters of a word of the user's name or address; shorter words are
	// ignored, because they occur in many passwords
	ownWord     = 4
	leastBeside = 6 // minimum number of characters that are not part of a keyboard or alphabet sequence
	straight    = 4 // minimum number of characters of such a sequence
	mostCommon  = 2 // a password of at most this many common words is invalid; a password of three words counts as a passphrase
)

// passwordFault returns a text that says what is wrong with a new password and how to fix it. For a
// valid password, it returns "". email and name belong to the user; the password must not consist
// of words of the address or the name. The result does not contain the password.
func passwordFault(password, email, name string) string {
	switch n := utf8.RuneCountInString(password); {
	case !utf8.ValidString(password):
		return "must be valid UTF-8"
	case n < minPassword:
		return "must have at least 12 characters: a few words that do not belong together are long and easy to remember"
	case n > maxPassword:
		return "must have at most 128 characters"
	}
	folded := strings.ToLower(password)
	switch {
	case different(folded) < leastDifferent:
		return "must have at least 5 different characters"
	case strings.Contains(folded, "headgate"):
		return "must not contain “headgate”: attackers try it first"
	case slices.ContainsFunc(ownWords(email, name), func(w string) bool { return strings.Contains(folded, w) }):
		return "must not contain your name or your e-mail address, or a part of them"
	case besideSequences(folded) < leastBeside:
		return "must not be made of straight sequences like 123456 or qwertz"
	case isCommon(folded):
		return "is one of the first passwords that attackers try: choose three or more words that do not belong together"
	}
	return ""
}

// different returns how many different characters s has.
func different(s string) int {
	seen := map[rune]bool{}
	for _, r := range s {
		seen[r] = true
	}
	return len(seen)
}

// ownWords returns the words of an e-mail address and of a name in lower case. It leaves out
// the top-level domain of the address, and words that are shorter than ownWord.
func ownWords(email, name string) []string {
	if dot := strings.LastIndexByte(email, '.'); dot > strings.LastIndexByte(email, '@') {
		email = email[:dot]
	}
	words := strings.FieldsFunc(strings.ToLower(email+" "+name), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return slices.DeleteFunc(words, func(w string) bool { return utf8.RuneCountInString(w) < ownWord })
}

// rows are the rows of keys of common keyboards, the digits, and the alphabet. runLength
// searches them forward and backward.
var rows = []string{
	"01234567890", "abcdefghijklmnopqrstuvwxyz",
	"qwertyuiop", "asdfghjkl", "zxcvbnm", "qwertzuiop", "yxcvbnm", "azertyuiop", "qsdfghjklm", "wxcvbn",
	"1qaz2wsx3edc4rfv5tgb6yhn7ujm", "!@#$%^&*()",
}

// besideSequences returns the number of characters of s that are not part of a sequence. A sequence
// is a part of one of the rows, forward or backward, with at least straight characters.
func besideSequences(s string) int {
	text := []rune(s)
	beside := 0
	for i := 0; i < len(text); {
		run := runLength(text[i:])
		if run < straight {
			run = 1
			beside++
		}
		i += run
	}
	return beside
}

// runLength returns the number of characters at the start of text that are a part of one of the
// rows, forward or backward.
func runLength(text []rune) int {
	longest := 1
	for _, row := range rows {
		for _, line := range []string{row, backwards(row)} {
			for n := longest + 1; n <= len(text) && strings.Contains(line, string(text[:n])); n++ {
				longest = n
			}
		}
	}
	return longest
}

func backwards(s string) string {
	r := []rune(s)
	slices.Reverse(r)
	return string(r)
}

//go:embed common_passwords.txt
var commonText string

// common returns the words in the file common_passwords.txt, which are often used as passwords.
var common = sync.OnceValue(func() map[string]bool {
	words := map[string]bool{}
	for line := range strings.Lines(commonText) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			words[line] = true
		}
	}
	return words
})

// disguises replaces digits and signs with the letters for which people use them in passwords.
var disguises = strings.NewReplacer("@", "a", "4", "a", "3", "e", "1", "i", "!", "i", "0", "o", "$", "s", "5", "s", "7", "t")

// isCommon reports whether a password in lower case has only one or two words of common_passwords.txt,
// apart from digits and signs. It also tries the password with digits and signs replaced by
// letters, so that "p4ssw0rd" counts as "password".
func isCommon(s string) bool {
	return fewCommonWords(letters(s)) || fewCommonWords(letters(disguises.Replace(s))) ||
		fewCommonWords(letters(disguises.Replace(strings.TrimRightFunc(s, func(r rune) bool { return !unicode.IsLetter(r) }))))
}

func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return -1
	}, s)
}

// fewCommonWords reports whether s consists of at most mostCommon words of common_passwords.txt. For "",
// it returns true.
func fewCommonWords(s string) bool {
	for most := range mostCommon + 1 {
		if madeOf(s, "", most) {
			return true
		}
	}
	return false
}

// madeOf reports whether s consists of at most most words of common_passwords.txt. last is the word
// before s, or "". Repetitions of last at the start of s do not count as further words.
func madeOf(s, last string, most int) bool {
	if s == "" {
		return true
	}
	if last != "" && strings.HasPrefix(s, last) && madeOf(s[len(last):], last, most) {
		return true
	}
	if most == 0 {
		return false
	}
	for n := range len(s) {
		if word := s[:n+1]; word != last && common()[word] && madeOf(s[n+1:], word, most-1) {
			return true
		}
	}
	return false
}
