package strictjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/problem"
	"github.com/headgate/headgate/internal/strictjson"
)

func TestCheckTakes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{}`, `[]`, `"a"`, `0`, `-0`, `-1.5e+3`, `1E2`, `true`, ` false `, "\t{\r\n}\n",
		`{"a":{"a":1},"b":[{"a":1},{"a":2}]}`, `"\u00e9\ud83d\ude00\"\\\/\b\f\n\r\t"`, `{"":1," ":2}`,
		`"é😀"`, "\"\u007f\"", `[[[[[[[[]]]]]]]]`, `"\\u0000"`,
	} {
		if err := strictjson.Check([]byte(text), strictjson.MaxDepth); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, pointer, says string }{
		{``, "", "ends early"},
		{`  `, "", "ends early"},
		{`{} {}`, "", "nothing may follow"},
		{`{}x`, "", "nothing may follow"},
		{`{"a":1,}`, "/a", "name in double quotes"},
		{`[1,]`, "/1", "value is missing"},
		{`[1 2]`, "/0", "comma"},
		{`{"a" 1}`, "/a", "colon"},
		{`{"a":1,"b":2,"a":3}`, "/a", "twice"},
		{`{"a":1,"\u0061":3}`, "/a", "twice"},
		{`{"a":null}`, "/a", "null"},
		{`null`, "", "null"},
		{`{"x":[1,{"y/z~":null}]}`, "/x/1/y~1z~0", "null"},
		{`"\u0000"`, "", "NUL"},
		{"\"\x00\"", "", "control character"},
		{"\x00", "", "value is missing"},
		{"{}\x00", "", "nothing may follow"},
		{`"\ud800"`, "", "pairs"},
		{`"\udc00\ud800"`, "", "pairs"},
		{`"\ud800\u0041"`, "", "pairs"},
		{`"\u00g0"`, "", "hexadecimal"},
		{`"\u00"`, "", "hexadecimal"},
		{`"\x"`, "", "unknown escape"},
		{"\"\xff\"", "", "UTF-8"},
		{"\"\xed\xa0\x80\"", "", "UTF-8"},
		{"\xef\xbb\xbf{}", "", "value is missing"},
		{`"a`, "", "not closed"},
		{`"a\`, "", "not closed"},
		{`01`, "", "nothing may follow"},
		{`-`, "", "digits"},
		{`1.`, "", "digits"},
		{`1e`, "", "digits"},
		{`+1`, "", "value is missing"},
		{`.5`, "", "value is missing"},
		{`NaN`, "", "value is missing"},
		{`tru`, "", "must be a value"},
		{`'a'`, "", "value is missing"},
		{`// c`, "", "value is missing"},
		{`[[[[[[[[[]]]]]]]]]`, "/0/0/0/0/0/0/0/0", "nested more than 8"},
		{strings.Repeat("[", 1<<16), "/0/0/0/0/0/0/0/0", "nested"},
		{`{"a":{"b":1}`, "/a", "comma"},
	} {
		err := strictjson.Check([]byte(c.text), strictjson.MaxDepth)
		var p *problem.Problem
		if !errors.As(err, &p) || p.Kind != problem.Malformed || len(p.Fields) != 1 {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if f := p.Fields[0]; f.Pointer != c.pointer || !strings.Contains(f.Message, c.says) {
			t.Errorf("%q: %q %q, want %q with %q", c.text, f.Pointer, f.Message, c.pointer, c.says)
		}
	}
}

// Many names in one object stay linear and duplicates are still found.
func TestManyNames(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(`{"inner":{"k7":1}`)
	for i := range 50_000 {
		fmt.Fprintf(&b, `,"k%d":%d`, i, i)
	}
	if err := strictjson.Check([]byte(b.String()+"}"), 8); err != nil {
		t.Fatal(err)
	}
	err := strictjson.Check([]byte(b.String()+`,"k40000":1}`), 8)
	var p *problem.Problem
	if !errors.As(err, &p) || p.Fields[0].Pointer != "/k40000" {
		t.Fatal(err)
	}
}

func TestDecoder(t *testing.T) {
	t.Parallel()
	var d strictjson.Decoder
	read := func(text string) (name string, cost int64, on bool, list []string, err error) {
		d.Reset(text, 8)
		for field := range d.Members() {
			switch field {
			case "name":
				name = d.Text()
			case "cost":
				cost = d.Int(-5, 100)
			case "on":
				on = d.Bool()
			case "list":
				for range d.Elements() {
					list = append(list, d.Text())
				}
			default:
				d.Unknown()
			}
		}
		return name, cost, on, list, d.End()
	}
	name, cost, on, list, err := read(`{"name":"a\nb","cost":-5,"on":true,"list":["x","y"]}`)
	if err != nil || name != "a\nb" || cost != -5 || !on || strings.Join(list, "") != "xy" {
		t.Fatal(name, cost, on, list, err)
	}
	for text, want := range map[string]string{
		`{"Cost":1}`:                   "/Cost: unknown field",
		`{"cost":1.0}`:                 "/cost: must be an integer",
		`{"cost":1e1}`:                 "/cost: must be an integer",
		`{"cost":-0}`:                  "/cost: must be an integer",
		`{"cost":"1"}`:                 "/cost: must be an integer",
		`{"cost":101}`:                 "/cost: must be from -5 to 100",
		`{"cost":9223372036854775808}`: "/cost: must be from -5 to 100",
		`{"on":1}`:                     "/on: must be true or false",
		`{"name":1}`:                   "/name: must be a string",
		`{"list":{}}`:                  "/list: must be an array",
		`{"list":["a",null]}`:          "/list/1: null",
		`[]`:                           ": must be an object",
		`{"list":["a"]} 1`:             ": nothing may follow",
	} {
		if _, _, _, _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// Null reads only null. Other methods reject it.
func TestNull(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a":null}`: "", `{"a": null }`: "", `{"a":1}`: "/a: must be a string", `{"a":nul}`: "/a", `{"a":nullx}`: "", `{"b":null}`: "/b: null",
	} {
		var d strictjson.Decoder
		d.Reset(text, 8)
		for name := range d.Members() {
			if name != "a" || !d.Null() {
				d.Text()
			}
		}
		switch err := d.End(); {
		case text == `{"a":nullx}` && err == nil, want == "" && text != `{"a":nullx}` && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()
	var d strictjson.Decoder
	d.Reset(`{"a": {"b":[1, 2]} , "c":1}`, 8)
	var raw string
	for name := range d.Members() {
		if name == "a" {
			raw = d.Raw()
		} else {
			d.Skip()
		}
	}
	if err := d.End(); err != nil || raw != `{"b":[1, 2]}` {
		t.Fatal(raw, err)
	}
}

// tree reads any value with the Decoder, as encoding/json would with UseNumber.
func tree(d *strictjson.Decoder) any {
	switch d.Kind() {
	case '{':
		m := map[string]any{}
		for name := range d.Members() {
			m[name] = tree(d)
		}
		return m
	case '[':
		l := []any{}
		for range d.Elements() {
			l = append(l, tree(d))
		}
		return l
	case '"':
		return d.Text()
	case 't', 'f':
		return d.Bool()
	}
	return json.Number(d.Raw())
}

// FuzzCheck compares Check and Decoder with encoding/json. They may reject what
// encoding/json accepts, must not accept what it rejects, and where both accept, the values
// are equal.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,"\u00e9\ud83d\ude00",true,{"b":{}}]}`, `{"a":1,"a":2}`, `null`, `[[[[[[[[[]]]]]]]]]`, "\"\xff\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := strictjson.Check(data, strictjson.MaxDepth)
		var d strictjson.Decoder
		d.Reset(string(data), strictjson.MaxDepth)
		got := tree(&d)
		if again := d.End(); (again == nil) != (err == nil) {
			t.Fatalf("Check says %v, Decoder %v", err, again)
		}
		if err != nil {
			if !problem.Is(err, problem.Malformed) {
				t.Fatal(err)
			}
			return
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		var want any
		if err := dec.Decode(&want); err != nil || !json.Valid(data) {
			t.Fatalf("encoding/json refuses what we take: %v", err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, encoding/json %#v", got, want)
		}
	})
}

func BenchmarkDecoder(b *testing.B) {
	const body = `{"tenant": "acme", "method": "POST", "path": "/v1/login", "attributes": {"user": "u1", "ip": "203.0.113.9"}, "cost": 1, "mode": "enforce"}`
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	var d strictjson.Decoder
	for b.Loop() {
		d.Reset(body, strictjson.MaxDepth)
		d.Skip()
		if err := d.End(); err != nil {
			b.Fatal(err)
		}
	}
}
