package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// completionCommand is headgate completion. It prints a completion script for a shell. The script
// calls headgate completion words to get the possible next words. So the script need not change
// when the commands change.
type completionCommand struct {
	Bash  completionBash  `cmd:"" help:"For bash: source <(headgate completion bash)"`
	Zsh   completionZsh   `cmd:"" help:"For zsh: source <(headgate completion zsh)"`
	Fish  completionFish  `cmd:"" help:"For fish: headgate completion fish | source"`
	Words completionWords `cmd:"" hidden:"" passthrough:"" help:"Print the possible next words; the scripts call it."`
}

type (
	completionBash struct{}
	completionZsh  struct{}
	completionFish struct{}
)

func (completionBash) Run(p program) error {
	return printText(p.stdout, `_headgate() {
	local IFS=$'\n'
	COMPREPLY=($(headgate completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
	[ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _headgate headgate
`)
}

func (completionZsh) Run(p program) error {
	return printText(p.stdout, `#compdef headgate
_headgate() {
	local -a found
	found=(${(f)"$(headgate completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
	if (( ${#found} )); then compadd -a found; else _files; fi
}
compdef _headgate headgate
`)
}

func (completionFish) Run(p program) error {
	const words = `(headgate completion words -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)`
	return printText(p.stdout, "complete -c headgate -a '"+words+"'\n")
}

func printText(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

type completionWords struct {
	Words []string `arg:"" optional:"" help:"The words after headgate; the last one is incomplete."`
}

func (c completionWords) Run(p program, parser *kong.Kong) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	if len(words) == 0 {
		words = []string{""}
	}
	for _, word := range candidates(parser.Model.Node, words[:len(words)-1], words[len(words)-1]) {
		fmt.Fprintln(p.stdout, word)
	}
	return nil
}

// candidates returns the words that begin with prefix and can follow the words in complete. They
// are commands, flags, or values of a flag.
func candidates(node *kong.Node, complete []string, prefix string) []string {
	var value *kong.Flag // the flag whose value is the next word, or nil
	for _, word := range complete {
		if value != nil {
			value = nil
			continue
		}
		if strings.HasPrefix(word, "-") {
			value = valueFlag(node, word)
			continue
		}
		if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			node = node.Children[i]
		}
	}
	var found []string
	switch {
	case value != nil:
		found = value.EnumSlice()
	case strings.HasPrefix(prefix, "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				found = append(found, "--"+f.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				found = append(found, child.Name)
			}
		}
		for _, argument := range node.Positional {
			found = append(found, argument.EnumSlice()...)
		}
	}
	found = slices.DeleteFunc(found, func(word string) bool { return word == "" || !strings.HasPrefix(word, prefix) })
	slices.Sort(found)
	return slices.Compact(found)
}

// valueFlag returns the flag that word names if the flag takes a value, and nil otherwise.
func valueFlag(node *kong.Node, word string) *kong.Flag {
	for _, group := range node.AllFlags(false) {
		for _, f := range group {
			if (word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short)) && !f.IsBool() {
				return f
			}
		}
	}
	return nil
}
