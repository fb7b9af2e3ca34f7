package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A need is a program that the tests call, and the Debian packages that contain it.
type need struct {
	Program  string
	Packages []string
	Why      string
}

// needs lists the programs that the tests need besides Go.
var needs = []need{
	{"gcc", []string{"gcc", "libc6-dev"}, "go test -race is linked by a C compiler"},
	{"initdb", []string{"postgresql"}, "makes a private Postgres cluster"},
	{"postgres", []string{"postgresql"}, "the server of the store's tests"},
	{"redis-server", []string{"redis-server"}, "the server of the shared limiter's tests"},
	{"nginx", []string{"nginx"}, "checks deploy/nginx.conf"},
	{"chromium", []string{"chromium"}, "the browser of the pages' tests"},
}

// searched lists the folders in which distributions install these programs outside of PATH. Debian
// has one folder for each version of Postgres.
var searched = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin", "/usr/local/opt/postgresql@*/bin",
	"/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin",
}

// Program returns the path of a program. It searches PATH, and then the folders of distributions,
// newest version first. If the program is missing, the error is a *missingError with its packages.
func Program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return filepath.Abs(path)
	}
	for _, pattern := range searched {
		found, _ := filepath.Glob(filepath.Join(pattern, name))
		slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	for _, n := range needs {
		if n.Program == name {
			return "", &missingError{Needs: []need{n}}
		}
	}
	return "", fmt.Errorf("program %s: %w", name, exec.ErrNotFound)
}

// version returns the number in a path like /usr/lib/postgresql/15/bin/initdb, or 0.
func version(path string) int {
	digits := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, filepath.Dir(path))
	n, _ := strconv.Atoi(digits)
	return n
}

// missing returns the needs whose programs are not installed. programs are the names to check; if
// there are none, missing checks all needs.
func missing(programs []string) []need {
	var missing []need
	for _, n := range needs {
		if len(programs) > 0 && !slices.Contains(programs, n.Program) {
			continue
		}
		if n.Program == "gcc" {
			if compilesC() != nil {
				missing = append(missing, n)
			}
			continue
		}
		if _, err := Program(n.Program); err != nil {
			missing = append(missing, n)
		}
	}
	return missing
}

// compilesC reports whether the C compiler can link a small program. Without the headers
// of the C library, it cannot.
func compilesC() error {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	dir, err := os.MkdirTemp("", "headgate-cc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source := filepath.Join(dir, "main.c")
	text := "#include <stdlib.h>\n#include <pthread.h>\nint main(void) { return EXIT_SUCCESS; }\n"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		return err
	}
	args := append(strings.Fields(compiler)[1:], "-o", filepath.Join(dir, "main"), source)
	return exec.Command(strings.Fields(compiler)[0], args...).Run()
}

// A missingError names the missing programs and how to install them.
type missingError struct{ Needs []need }

// Packages lists the Debian packages to install, without duplicates.
func (e *missingError) Packages() []string {
	var names []string
	for _, n := range e.Needs {
		for _, p := range n.Packages {
			if !slices.Contains(names, p) {
				names = append(names, p)
			}
		}
	}
	return names
}

func (e *missingError) Error() string {
	var b strings.Builder
	b.WriteString("the tests need programs that are not installed:\n")
	for _, n := range e.Needs {
		fmt.Fprintf(&b, "  %-14s package %-20s %s\n", n.Program, strings.Join(n.Packages, " "), n.Why)
	}
	b.WriteString("Install them, on Debian or Ubuntu with:\n")
	fmt.Fprintf(&b, "  sudo apt-get update && sudo apt-get install -y --no-install-recommends %s", strings.Join(e.Packages(), " "))
	return b.String()
}

// Version returns the first line of a program's version output.
func Version(ctx context.Context, path string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil && line == "" {
		return "of unknown version"
	}
	return line
}
