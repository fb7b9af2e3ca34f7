package accounts_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/accounts"
)

const goodPassword = "winter lamp over bridges"

func TestHashesAreArgon2idInPHCForm(t *testing.T) {
	t.Parallel()
	one, err := accounts.CurrentHash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	two, _ := accounts.CurrentHash(t.Context(), goodPassword)
	if !strings.HasPrefix(one, "$argon2id$v=19$m=19456,t=2,p=1$") || one == two {
		t.Errorf("hashes %s and %s", one, two)
	}
	p := accounts.NewPasswords(nil, nil)
	for password, want := range map[string]bool{
		goodPassword: true, goodPassword + " ": false, strings.ToUpper(goodPassword): false, "": false,
		goodPassword + "\x00": false, strings.Repeat("x", 2000): false,
	} {
		if right, err := p.Verify(t.Context(), one, password); err != nil || right != want {
			t.Errorf("%q: %v, %v", password, right, err)
		}
	}
	// What the reference implementation gives in its own tests for "password" and
	// "somesalt".
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	if right, err := p.Verify(t.Context(), reference, "password"); err != nil || !right {
		t.Errorf("the reference's hash: %v, %v", right, err)
	}
}

func TestHashesThatTakeLessAreOutdated(t *testing.T) {
	t.Parallel()
	old, err := accounts.NewPasswords(nil, nil).Hash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	now, err := accounts.CurrentHash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	current := accounts.NewPasswords(nil, nil) // cheap
	if current.Outdated(old) || current.Outdated(now) || current.Outdated("") {
		t.Error("a hash that takes as much, or more, or is none, is outdated")
	}
	if less := strings.Replace(old, "m=64,", "m=32,", 1); !current.Outdated(less) {
		t.Errorf("%s is not outdated", less)
	}
}

func TestEverythingIsHashedOnce(t *testing.T) {
	t.Parallel()
	var hashes atomic.Int64
	open := make(chan struct{})
	close(open)
	p := accounts.NewPasswords(func() { hashes.Add(1) }, open)
	stored, err := p.Hash(t.Context(), goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][2]string{
		"right":        {stored, goodPassword},
		"wrong":        {stored, "another"},
		"nobody":       {"", goodPassword},
		"damaged":      {"$argon2id$", goodPassword},
		"huge":         {stored, strings.Repeat("x", 100_000)},
		"huge, nobody": {"", strings.Repeat("x", 100_000)},
		"no password":  {"", ""},
	} {
		hashes.Store(0)
		right, err := p.Verify(t.Context(), c[0], c[1])
		if err != nil || right != (name == "right") || hashes.Load() != 1 {
			t.Errorf("%s: %v, %v after %d hashes, want 1", name, right, err, hashes.Load())
		}
	}
}

func TestAtMostFourHashesAtOnce(t *testing.T) {
	t.Parallel()
	var running, most atomic.Int64
	begun, end := make(chan struct{}, 100), make(chan struct{})
	p := accounts.NewPasswords(func() {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		begun <- struct{}{}
	}, end)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.Hash(t.Context(), goodPassword); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 {
		<-begun
	}
	// The slots are taken: whoever waits obeys the context.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Hash(ctx, goodPassword); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want that the context has ended", err)
	}
	for range 20 {
		running.Add(-1)
		end <- struct{}{}
	}
	wg.Wait()
	if most.Load() > 4 {
		t.Errorf("%d hashes ran at once", most.Load())
	}
}

func FuzzStoredHash(f *testing.F) {
	for _, seed := range []string{
		"", "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2i$v=19$m=1,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=4294967295,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=+8,t=01,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=8,t=0,p=0$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=8,t=1,p=1$$",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		again, memory, passes, lanes, err := accounts.ReadHash(text)
		switch {
		case err != nil && len(text) > 40 && strings.Contains(err.Error(), text):
			t.Errorf("the error shows the hash: %v", err)
		case err != nil:
		case again != text:
			t.Errorf("read %q, wrote %q", text, again)
		case memory < 1 || memory > 256*1024 || passes < 1 || passes > 16 || lanes < 1 || lanes > 8:
			t.Errorf("%q takes %d KiB, %d passes, %d lanes", text, memory, passes, lanes)
		}
	})
}

func TestPasswordsThatArePossible(t *testing.T) {
	t.Parallel()
	for _, password := range []string{
		goodPassword, "correct-hat-battery-fork", "Tr0ub4dor&3-lantern", "zwölf Äpfel im Schrank", "水の流れは絶えずして元の水に", "пароль вечернего дождя",
		"x7$kQ!v92LmZ", "my dragon eats purple clouds", "a1b2-lamp-c3d4", strings.Repeat("lamp bridges ", 9) + "winter more",
		"river123456stone", "  leading and trailing  ",
	} {
		if fault := accounts.PasswordFault(password, "ann@example.com", "Ann Walker"); fault != "" {
			t.Errorf("%q: %s", password, fault)
		}
	}
}

func TestPasswordsThatAreRefused(t *testing.T) {
	t.Parallel()
	for want, list := range map[string][]string{
		"at least 12 characters": {"", "short", "elevenchars", "äöüäöüäöüäö"},
		"at most 128 characters": {strings.Repeat("lamp winter ", 11)},
		"valid UTF-8":            {"winter lamp over \xff\xfe"},
		"5 different characters": {"aaaaaaaaaaaa", "abababababab", "abcdabcdabcd", "AaAaAaAaAaAa", "000000000000"},
		"headgate":               {"my headgate pass", "HeadGate-9182-xy"},
		"your name or your":      {"annwalker-9-stones", "i am at example today", "WALKER walks far"},
		"straight sequences":     {"123456789012", "1234567890-abcdefgh", "qwertyuiopasdf", "zyxwvutsrqponm", "1qaz2wsx3edc"},
		"one of the first pass":  {"password1234!", "P@ssw0rd!2024", "welcome2024!!", "iloveyou-1999", "letmeinplease1", "correcthorsebatterystaple", "Administrator1!", "dragonmonkey99", "passwordpassword", "918273645546", "Sunshine&Rainbow", "thequickbrownfox"},
	} {
		for _, password := range list {
			fault := accounts.PasswordFault(password, "ann@example.com", "Ann Walker")
			if !strings.Contains(fault, want) {
				t.Errorf("%.60q: %q, want %q", password, fault, want)
			}
			if len(password) > 4 && strings.Contains(fault, password) {
				t.Errorf("the message shows the password: %s", fault)
			}
		}
	}
}

func TestCommonWordsAreWordsInLowerCase(t *testing.T) {
	t.Parallel()
	words := accounts.CommonWords()
	if len(words) < 300 {
		t.Errorf("only %d common words", len(words))
	}
	for i, w := range words {
		if w != strings.ToLower(w) || utf8.RuneCountInString(w) < 3 || strings.ContainsAny(w, "0123456789 -_") {
			t.Errorf("%q is no word in lower case", w)
		}
		if i > 0 && words[i-1] >= w {
			t.Errorf("%q does not stand after %q", w, words[i-1])
		}
	}
}

// The policy answers for every text, and accepts only passwords within its bounds.
func TestPasswordPolicyHoldsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9]{10,140}`), rapid.StringN(12, 128, 1024)).Draw(t, "password")
		email, name := rapid.String().Draw(t, "email"), rapid.String().Draw(t, "name")
		if accounts.PasswordFault(password, email, name) != "" {
			return
		}
		n := utf8.RuneCountInString(password)
		seen := slices.Compact(slices.Sorted(strings.SplitSeq(strings.ToLower(password), "")))
		if n < 12 || n > 128 || len(password) > 1024 || len(seen) < 5 || !utf8.ValidString(password) {
			t.Errorf("%q of %d characters passed", password, n)
		}
	})
}

func TestEmails(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64) + "@" + strings.Repeat("b", 185) + ".org"
	for email, want := range map[string]bool{
		"ann@example.com": true, "a@b": true, "Ann.O'Neil+x@Example.COM": true, "ünï@bücher.example": true, "佐藤@例え.jp": true,
		long: true, long + "m": false, "": false, "ann": false, "@example.com": false, "ann@": false, "a@b@c": false, "a b@c.de": false,
		" a@b.de": false, "a@b.de\n": false, "a\x00@b.de": false, "a@b.de\u202e": false, "a\u00a0@b.de": false, "a@\xff.de": false, "a\u200b@b.de": false,
	} {
		if got := accounts.ValidEmail(email); got != want {
			t.Errorf("%q: %v, want %v", email, got, want)
		}
	}
}

func TestAddressesAreComparedByCaseAlone(t *testing.T) {
	t.Parallel()
	for a, same := range map[[2]string]bool{
		{"Ann.O'Neil@Example.COM", "ann.o'neil@example.com"}: true,
		{"ÜNÏ@BÜCHER.example", "ünï@bücher.example"}:         true,
		// What Unicode lowers to a letter of ASCII is another address: it can belong
		// to somebody else.
		{"\u212aate@example.com", "kate@example.com"}:   false,
		{"kate@m\u0130ll.example", "kate@mill.example"}: false,
	} {
		if got := accounts.FoldEmail(a[0]) == accounts.FoldEmail(a[1]); got != same {
			t.Errorf("%q and %q: the same %v, want %v", a[0], a[1], got, same)
		}
	}
}
