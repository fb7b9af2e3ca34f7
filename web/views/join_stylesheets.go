package views

import (
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Stylesheet joins all style sheets in the order of their names. Each style sheet becomes a
// cascade layer that has the name of its file.
func Stylesheet(files fs.FS) ([]byte, error) {
	var names []string
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".css" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var all bytes.Buffer
	for _, name := range names {
		body, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		layer := strings.TrimLeft(strings.TrimSuffix(path.Base(name), ".css"), "0123456789-")
		fmt.Fprintf(&all, "@layer %s {\n%s\n}\n", layer, body)
	}
	return all.Bytes(), nil
}
