package headgate_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write NOTICE again")

// licenseFile matches the files of a module that its users must receive.
var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// A linkedModule is a module with packages in the program.
type linkedModule struct{ Path, Version, Dir string }

// linkedModules returns the modules that are linked into headgate on each released platform.
func linkedModules(t *testing.T) []linkedModule {
	t.Helper()
	found := map[string]linkedModule{}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		system, processor, _ := strings.Cut(platform, "/")
		list := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/server")
		list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
			var p struct {
				Module *struct {
					linkedModule
					Main bool
				}
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if p.Module != nil && !p.Module.Main {
				found[p.Module.Path] = p.Module.linkedModule
			}
		}
	}
	var modules []linkedModule
	for _, m := range found {
		modules = append(modules, m)
	}
	slices.SortFunc(modules, func(a, b linkedModule) int { return strings.Compare(a.Path, b.Path) })
	return modules
}

// licenses returns the texts of the license files of a module.
func licenses(t *testing.T, dir string) (texts []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
		for i := range lines {
			lines[i] = strings.TrimRight(lines[i], " \t")
		}
		texts = append(texts, strings.Trim(strings.Join(lines, "\n"), "\n"))
	}
	return texts
}

// NOTICE has the licenses of all modules in the program, and of Go. Equal texts are printed once.
// go test . -run Notice -update writes it.
func TestNotice(t *testing.T) {
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := append([]linkedModule{{Path: "the Go standard library", Dir: strings.TrimSpace(string(root))}}, linkedModules(t)...)
	users, order := map[string][]string{}, []string{}
	for _, m := range modules {
		texts := licenses(t, m.Dir)
		if len(texts) == 0 {
			t.Errorf("%s has no license file", m.Path)
		}
		for _, text := range texts {
			if users[text] == nil {
				order = append(order, text)
			}
			users[text] = append(users[text], strings.TrimSpace(m.Path+" "+m.Version))
		}
	}
	var page strings.Builder
	page.WriteString("Headgate is licensed under the Apache License 2.0, see LICENSE. Its binary contains these works, under the terms below them.\n")
	for _, text := range order {
		fmt.Fprintf(&page, "\n%s\n\n  %s\n\n%s\n", strings.Repeat("-", 80), strings.Join(users[text], "\n  "), text)
	}
	if *update {
		if err := os.WriteFile("NOTICE", []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != page.String() {
		t.Error("NOTICE is not what the linked modules say; write it with: go test . -run Notice -update")
	}
}
