package redis

import (
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
)

//go:embed scripts/arith.lua
var arithText string

//go:embed scripts/take.lua
var takeText string

// A script is a text and the hash by which Redis knows it.
type script struct{ text, sha string }

// newScript puts the arithmetic before a script's own text.
func newScript(text string) script {
	text = arithText + "\n" + text
	sum := sha1.Sum([]byte(text)) // Redis' choice of hash; it is a name, not a seal
	return script{text: text, sha: hex.EncodeToString(sum[:])}
}
