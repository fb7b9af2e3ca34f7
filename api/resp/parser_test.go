package resp

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// words returns the arguments that spans have in b.
func words(b []byte, spans []span) []string {
	var list []string
	for _, s := range spans {
		list = append(list, string(b[s.from:s.end]))
	}
	return list
}

func encode(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		in   string
		want []string
		rest string // what parse leaves for the next command
		err  error
	}{
		"array":                {encode("AUTH", "key"), []string{"AUTH", "key"}, "", nil},
		"line breaks inside":   {encode("ECHO", "a\r\n*1\r\n"), []string{"ECHO", "a\r\n*1\r\n"}, "", nil},
		"empty argument":       {encode("ECHO", ""), []string{"ECHO", ""}, "", nil},
		"two commands":         {encode("PING") + encode("QUIT"), []string{"PING"}, encode("QUIT"), nil},
		"empty array":          {"*0\r\n", nil, "", nil},
		"inline":               {"  PING  hello \r\n", []string{"PING", "hello"}, "", nil},
		"empty line":           {"\r\n", nil, "", nil},
		"double quotes":        {`ECHO "a b" c"d e"` + "\r\nPING\r\n", []string{"ECHO", "a b", "cd e"}, "PING\r\n", nil},
		"single quotes":        {`ECHO 'a b' '\'' 'a\n'` + "\r\n", []string{"ECHO", "a b", "'", `a\n`}, "", nil},
		"escapes":              {`ECHO "\x41\xff\n\r\t\b\a\"\\\q\xzz"` + "\n", []string{"ECHO", "A\xff\n\r\t\b\a\"\\qxzz"}, "", nil},
		"empty quotes":         {`ECHO "" ''` + "\n", []string{"ECHO", "", ""}, "", nil},
		"tabs":                 {"PING\thello\r\n", []string{"PING", "hello"}, "", nil},
		"open double quote":    {`ECHO "a` + "\r\n", nil, "", errQuotes},
		"open single quote":    {`ECHO 'a` + "\r\n", nil, "", errQuotes},
		"escape of the quote":  {`ECHO "a\"` + "\r\n", nil, "", errQuotes},
		"text after a quote":   {`ECHO "a"b` + "\r\n", nil, "", errQuotes},
		"longest argument":     {encode("ECHO", strings.Repeat("x", maxCommand-30)), []string{"ECHO", strings.Repeat("x", maxCommand-30)}, "", nil},
		"too many arguments":   {"*65\r\n", nil, "", errTooMany},
		"billion of arguments": {"*2000000000\r\n", nil, "", errTooLarge},
		"too long argument":    {"*1\r\n$40000\r\n", nil, "", errTooLarge},
		"too long altogether":  {"*4\r\n" + strings.Repeat("$9000\r\n"+strings.Repeat("x", 9000)+"\r\n", 4), nil, "", errTooLarge},
		"negative length":      {"*1\r\n$-1\r\n", nil, "", errFraming},
		"no length":            {"*\r\n", nil, "", errFraming},
		"no bulk string":       {"*1\r\n:1\r\n", nil, "", errFraming},
		"wrong length":         {"*1\r\n$1\r\nab\r\n", nil, "", errFraming},
		"only LF":              {"*1\n$1\na\n", nil, "", errFraming},
		"inline without end":   {strings.Repeat("x", maxInline), nil, "", errTooLarge},
		"inline of many words": {strings.Repeat("x ", maxArguments+1) + "\n", nil, "", errTooMany},
	} {
		in := []byte(test.in)
		spans, n, err := parse(in, 0, nil)
		if !errors.Is(err, test.err) {
			t.Errorf("%s: error %v, want %v", name, err, test.err)
			continue
		}
		if got := words(in, spans); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if err == nil && test.in[n:] != test.rest {
			t.Errorf("%s: leaves %q, want %q", name, test.in[n:], test.rest)
		}
		for end := range n { // a command that is not complete is neither read nor an error
			if spans, n, err := parse([]byte(test.in[:end]), 0, nil); err != nil || n != 0 || len(spans) != 0 {
				t.Fatalf("%s: the first %d bytes give %d, %d, %v", name, end, len(spans), n, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(encode("HEADGATE.CHECK", "acme", "/v1/items", "user", "u1", "COST", "2")))
	f.Add([]byte("PING\r\n"))
	f.Add([]byte("*1\r\n$4\r\nPI"))
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, n, err := parse(b, 0, nil)
		if err != nil && n != 0 || n > len(b) || n > maxCommand {
			t.Fatalf("%d of %d bytes, %v", n, len(b), err)
		}
		if len(b) >= maxCommand+maxInline && n == 0 && err == nil {
			t.Fatal("a command without end is not an error")
		}
		last := 0
		for _, s := range spans {
			if s.from < last || s.end < s.from || s.end > n {
				t.Fatalf("argument at %d to %d, after %d, in a command of %d bytes", s.from, s.end, last, n)
			}
			last = s.end
		}
		if n == 0 {
			return
		}
		// Encoded again, the arguments are the same. Inline commands and empty arrays have another form.
		if args := words(b, spans); b[0] == '*' && len(args) > 0 {
			again := []byte(encode(args...))
			second, _, err := parse(again, 0, nil)
			if err != nil || !slices.Equal(words(again, second), args) {
				t.Fatalf("%q becomes %q, %v", args, words(again, second), err)
			}
		}
	})
}
