package migrate

import (
	"errors"
	"fmt"
	"strings"
)

// A nginxParser splits an nginx configuration into directives.
type nginxParser struct {
	text string // the rest of the text that is not read yet
	file string
	line int
	dump bool // set if the text is the output of nginx -T
}

// dumpedFile is the beginning of a comment in the output of nginx -T. Each file has such a comment
// before it, and the name of the file follows dumpedFile.
const dumpedFile = "# configuration file "

// directives reads directives up to the end of the current block. If inBlock is false, it reads up
// to the end of the text.
func (p *nginxParser) directives(inBlock bool) ([]directive, error) {
	var list []directive
	var d directive
	for {
		word, quoted, err := p.word()
		switch {
		case err != nil:
			return nil, err
		case quoted:
		case word == "":
			if inBlock || d.name != "" {
				return nil, errors.New("the text ends in a directive or a block")
			}
			return list, nil
		case word == "}":
			if !inBlock || d.name != "" {
				return nil, errors.New("unexpected }")
			}
			return list, nil
		case word == ";" || word == "{":
			if d.name == "" {
				return nil, fmt.Errorf("unexpected %s", word)
			}
			if word == "{" && strings.HasSuffix(d.name, "_by_lua_block") {
				p.skipBlock()
			} else if word == "{" {
				if d.block, err = p.directives(true); err != nil {
					return nil, err
				}
			}
			if d.name == "location" && len(d.args) == 0 {
				return nil, errors.New("location has no path")
			}
			list = append(list, d)
			d = directive{}
			continue
		}
		if d.name == "" {
			d = directive{name: word, file: p.file, line: p.line}
		} else {
			d.args = append(d.args, word)
		}
	}
}

// skipBlock skips a block whose content is not in the language of nginx, such as Lua.
func (p *nginxParser) skipBlock() {
	for depth := 1; p.text != "" && depth > 0; {
		switch p.text[0] {
		case '{':
			depth++
		case '}':
			depth--
		case '\n':
			p.line++
		}
		p.text = p.text[1:]
	}
}

// word returns the next word, or "" at the end of the text. A word is ";", "{", "}", or an
// argument. quoted reports whether the word was in quotes.
func (p *nginxParser) word() (word string, quoted bool, err error) {
	p.skipSpace()
	if p.text == "" {
		return "", false, nil
	}
	switch c := p.text[0]; c {
	case ';', '{', '}':
		p.text = p.text[1:]
		return string(c), false, nil
	case '"', '\'':
		return p.quoted(c)
	}
	var b strings.Builder
	for i := 0; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '\\' && i+1 < len(p.text):
			b.WriteString(p.text[i : i+2])
			i++
			continue
		case c == '{' && i > 0 && p.text[i-1] == '$': // ${variable}
			end := strings.IndexByte(p.text[i:], '}')
			if end < 0 {
				return "", false, errors.New("${ has no }")
			}
			b.WriteString(p.text[i : i+end+1])
			i += end
			continue
		case strings.IndexByte(" \t\r\n;{}", c) >= 0:
			p.text = p.text[i:]
			return b.String(), false, nil
		default:
			b.WriteByte(c)
		}
	}
	p.text = ""
	return b.String(), false, nil
}

// quoted reads a word in quotes. quote is the quotation mark.
func (p *nginxParser) quoted(quote byte) (string, bool, error) {
	var b strings.Builder
	for i := 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == '\\' && i+1 < len(p.text):
			i++
			b.WriteByte(p.text[i])
		case c == quote:
			p.text = p.text[i+1:]
			return b.String(), true, nil
		default:
			if c == '\n' {
				p.line++
			}
			b.WriteByte(c)
		}
	}
	return "", false, fmt.Errorf("%c is not closed", quote)
}

// skipSpace skips spaces and comments.
func (p *nginxParser) skipSpace() {
	for p.text != "" {
		switch p.text[0] {
		case '\n':
			p.line++
			fallthrough
		case ' ', '\t', '\r':
			p.text = p.text[1:]
		case '#':
			comment, rest, _ := strings.Cut(p.text, "\n")
			p.text = rest
			p.line++
			if name, ok := strings.CutPrefix(comment, dumpedFile); ok && strings.HasSuffix(name, ":") {
				p.file, p.line, p.dump = strings.TrimSuffix(name, ":"), 1, true
			}
		default:
			return
		}
	}
}
