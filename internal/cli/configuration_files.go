package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A bundle is a configuration from one or several files, with the file and line of each of its
// parts.
type bundle struct {
	sections map[string]map[string]any // plans and tenants, by section and slug
	places   map[string]string         // file and line of each part, by JSON pointer
}

// readBundle reads a configuration from files and folders. The path "-" stands for standard input.
// It returns an error if two files contain the same slug.
func readBundle(t Terminal, paths []string) (*bundle, error) {
	b := &bundle{sections: map[string]map[string]any{}, places: map[string]string{}}
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); path != "-" && err == nil && info.IsDir() {
			if files, err = configurationFiles(path); err != nil {
				return nil, usage("--file: %w", err)
			}
			if len(files) == 0 {
				return nil, usage("--file: %s has no .yaml, .yml or .json files", path)
			}
		}
		for _, file := range files {
			if err := b.readFile(t, file); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// configurationFiles returns the YAML and JSON files in a folder and its subfolders. It leaves out
// hidden files and folders.
func configurationFiles(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path != folder && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	return files, err
}

func (b *bundle) readFile(t Terminal, file string) error {
	text, name, err := readInput(t, file)
	if err != nil {
		return err
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document yaml.Node
		err := d.Decode(&document)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = b.add(name, document.Content[0])
		}
		if err != nil {
			return &Error{ExitInvalid, fmt.Errorf("%s: %w", name, err)}
		}
	}
}

// add adds one YAML document of a file to the bundle.
func (b *bundle) add(file string, root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: must have the members plans and tenants", root.Line)
	}
	for i := 0; i+1 < len(root.Content); i += 2 {
		section, objects := root.Content[i].Value, root.Content[i+1]
		switch {
		case section == "$schema":
			continue
		case section != "plans" && section != "tenants":
			return fmt.Errorf("line %d: unknown member %s%s", root.Content[i].Line, section, DidYouMean(section, []string{"plans", "tenants"}))
		case objects.Kind != yaml.MappingNode:
			return fmt.Errorf("line %d: %s must be a mapping of slugs", objects.Line, section)
		}
		if b.sections[section] == nil {
			b.sections[section] = map[string]any{}
		}
		for j := 0; j+1 < len(objects.Content); j += 2 {
			if err := b.addObject(file, section, objects.Content[j], objects.Content[j+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bundle) addObject(file, section string, slug, object *yaml.Node) error {
	pointer := "/" + section + "/" + escapePointer(slug.Value)
	if _, twice := b.sections[section][slug.Value]; twice {
		return fmt.Errorf("line %d: %s is in %s already", slug.Line, pointer, b.places[pointer])
	}
	var v any
	if err := object.Decode(&v); err != nil {
		return err
	}
	if _, err := json.Marshal(v); err != nil {
		return fmt.Errorf("line %d: %s: %w", slug.Line, pointer, err)
	}
	b.sections[section][slug.Value] = v
	b.places[pointer] = fmt.Sprintf("%s:%d", file, slug.Line)
	b.note(file, pointer, object)
	return nil
}

// note records the file and line of a YAML node and of all nodes below it. pointer is the JSON
// pointer of the node.
func (b *bundle) note(file, pointer string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	for i := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			at := pointer + "/" + strconv.Itoa(i)
			b.places[at] = fmt.Sprintf("%s:%d", file, n.Content[i].Line)
			b.note(file, at, n.Content[i])
		case i%2 == 0 && i+1 < len(n.Content):
			at := pointer + "/" + escapePointer(n.Content[i].Value)
			b.places[at] = fmt.Sprintf("%s:%d", file, n.Content[i].Line)
			b.note(file, at, n.Content[i+1])
		}
	}
}

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// place returns the file and line of the part at a JSON pointer. If the bundle has no such
// part, it returns the file and line of the closest part that encloses it.
func (b *bundle) place(pointer string) string {
	for pointer != "" {
		if place, ok := b.places[pointer]; ok {
			return place
		}
		pointer = pointer[:strings.LastIndexByte(pointer, '/')]
	}
	return ""
}

// located adds the file and line to each fault that the error of the API contains.
func (b *bundle) located(err error) error {
	var p *problemError
	var code *Error
	if !errors.As(err, &p) || !errors.As(err, &code) {
		return err
	}
	out := *p
	out.Errors = slices.Clone(p.Errors)
	for i, f := range out.Errors {
		if !strings.HasPrefix(f.Pointer, "/") {
			continue
		}
		if place := b.place(f.Pointer); place != "" {
			out.Errors[i].Pointer = place + ": " + f.Pointer
		}
	}
	return &Error{code.Code, &out}
}
