package tenants

import (
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// tokenForm is the documented form: what secret scanners look for.
var tokenForm = regexp.MustCompile(`^hg_(op|tn)_[0-9A-Za-z]{49}$`)

func TestTokenForm(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, kind := range []string{OperatorToken, TenantToken} {
		for range 200 {
			token := NewToken(kind)
			if !tokenForm.MatchString(token) || !strings.HasPrefix(token, "hg_"+kind+"_") {
				t.Fatalf("NewToken(%q) = %q: not of the form %v", kind, token, tokenForm)
			}
			if !WellFormed(token) {
				t.Fatalf("%q is not well formed", token)
			}
			if seen[token] {
				t.Fatalf("%q came twice", token)
			}
			seen[token] = true
		}
	}
}

// A CRC finds every error of up to 32 bits in a row, so every single character
// mistyped and every two neighbours swapped are found.
func TestTypingErrorsAreFound(t *testing.T) {
	t.Parallel()
	token := NewToken(TenantToken)
	for i := range token {
		for _, c := range []byte(base62 + "_-") {
			if c == token[i] {
				continue
			}
			if wrong := token[:i] + string(c) + token[i+1:]; WellFormed(wrong) {
				t.Errorf("%q passes for %q", wrong, token)
			}
		}
		if i > 0 && token[i] != token[i-1] {
			if wrong := token[:i-1] + token[i:i+1] + token[i-1:i] + token[i+1:]; WellFormed(wrong) {
				t.Errorf("%q passes for %q", wrong, token)
			}
		}
		if WellFormed(token[:i] + token[i+1:]) {
			t.Errorf("%q passes without its character %d", token, i)
		}
	}
}

func TestWellFormedRefuses(t *testing.T) {
	t.Parallel()
	token := NewToken(OperatorToken)
	for _, wrong := range []string{"", "hg_", " " + token, token + " ", token + "\n", strings.ToUpper(token), strings.Repeat("a", tokenLength), strings.Repeat("é", tokenLength)} {
		if WellFormed(wrong) {
			t.Errorf("WellFormed(%q)", wrong)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`hg_(op|tn)_[0-9A-Za-z]{40,52}`)).Draw(t, "s")
		if WellFormed(s) && len(s) != tokenLength {
			t.Fatalf("WellFormed(%q)", s)
		}
	})
}

func TestTokenHintAndHash(t *testing.T) {
	t.Parallel()
	a, b := NewToken(TenantToken), NewToken(TenantToken)
	if HashToken(a) == HashToken(b) {
		t.Error("two tokens have one hash")
	}
	hint := TokenHint(a)
	if want := a[:10] + "…" + a[len(a)-4:]; hint != want {
		t.Errorf("TokenHint = %q, want %q", hint, want)
	}
	if strings.Contains(TokenHint("short"), "short") {
		t.Error("the hint of a short text shows it")
	}
}

// The checksum is the documented one, and asking for it costs no memory: every
// request does, the hostile ones too.
func TestChecksum(t *testing.T) {
	t.Parallel()
	for range 1000 {
		token := NewToken(TenantToken)
		body := token[:tokenLength-crcDigits]
		text := new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))).Text(62)
		// big.Int counts 0-9a-zA-Z, tokens 0-9A-Za-z.
		text = strings.Map(func(r rune) rune {
			switch {
			case r >= 'a' && r <= 'z':
				return r - 'a' + 'A'
			case r >= 'A' && r <= 'Z':
				return r - 'A' + 'a'
			}
			return r
		}, text)
		want := strings.Repeat("0", crcDigits-len(text)) + text
		if got := token[len(body):]; got != want {
			t.Fatalf("%s has the checksum %s, want %s", body, got, want)
		}
	}
}

func TestWellFormedAllocatesNothing(t *testing.T) {
	token := NewToken(TenantToken)
	wrong := token[:tokenLength-1] + "!"
	if n := testing.AllocsPerRun(100, func() {
		if !WellFormed(token) || WellFormed(wrong) {
			t.Error("wrong answer")
		}
	}); n != 0 {
		t.Errorf("WellFormed allocates %v times", n)
	}
}

func BenchmarkWellFormed(b *testing.B) {
	token := NewToken(TenantToken)
	for b.Loop() {
		WellFormed(token)
	}
}
