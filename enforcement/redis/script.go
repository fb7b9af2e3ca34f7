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

// scripts are the scripts of a Limiter. A call chooses one of them by its shape.
type scripts struct {
	take   script // decides every shape
	batch  script // decides plain calls
	single script // decides a plain call of one charge
	only   bool   // tests choose take alone
}

func newScripts() *scripts {
	return &scripts{
		take:   script{body: newBody(common() + scriptText("take.lua"))},
		batch:  script{body: newBody(common() + scriptText("batch.lua"))},
		single: script{body: newBody(common() + scriptText("single.lua"))},
	}
}

// A script is a text, the hash by which Redis knows it, and how many calls were
// encoded for it.
type script struct {
	body
	calls atomic.Int64
}

type body struct{ text, sha string }

func newBody(text string) body {
	sum := sha1.Sum([]byte(text)) // Redis' choice of hash; it is a name, not a seal
	return body{text: text, sha: hex.EncodeToString(sum[:])}
}

// common is what the scripts that take requests have in common.
func common() string {
	settling := scriptText("arith.lua") + "\n" + scriptText("settle.lua")
	return scriptText("cell.lua") + "\nlocal function settling(now)\n" + settling + "\nend\n\n"
}

var includes = regexp.MustCompile(`(?m)^ *-- include: (.*)$`)

// scriptText is a file of scripts, with the files that it includes.
func scriptText(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name)
	if err != nil {
		panic(err) // a file that a script of this package names
	}
	return includes.ReplaceAllStringFunc(string(text), func(line string) string {
		return scriptText(includes.FindStringSubmatch(line)[1])
	})
}
