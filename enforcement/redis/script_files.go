package redis

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"regexp"
	"sync/atomic"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// scripts has the scripts that decide requests. encode selects one of them for each call, by the
// properties of its requests.
type scripts struct {
	take   script // can decide every call
	batch  script // decides calls without special requests; see call.plain
	single script // decides such a call if the call has only one charge
	only   bool   // set by tests that use only take.lua
}

func newScripts() *scripts {
	return &scripts{
		take:   script{body: newBody(common() + scriptText("take.lua"))},
		batch:  script{body: newBody(common() + scriptText("batch.lua"))},
		single: script{body: newBody(common() + scriptText("single.lua"))},
	}
}

// A script has the text and the hash of a Lua script, and the number of calls that were encoded
// for it.
type script struct {
	body
	calls atomic.Int64
}

type body struct{ text, sha string }

func newBody(text string) body {
	sum := sha1.Sum([]byte(text)) // Redis identifies scripts by their SHA-1 hash; security does not depend on it
	return body{text: text, sha: hex.EncodeToString(sum[:])}
}

// common returns the text with which each script that decides requests begins.
func common() string {
	settling := scriptText("arith.lua") + "\n" + scriptText("settle.lua")
	return scriptText("cell.lua") + "\nlocal function settling(now)\n" + settling + "\nend\n\n"
}

var includes = regexp.MustCompile(`(?m)^ *-- include: (.*)$`)

// scriptText returns the text of a script file. It replaces each include line by the text of the
// file that the line names.
func scriptText(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name)
	if err != nil {
		panic(err) // this package names only embedded files
	}
	return includes.ReplaceAllStringFunc(string(text), func(line string) string {
		return scriptText(includes.FindStringSubmatch(line)[1])
	})
}
