package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Provide installs missing programs. programs are names from needs; if there are none, Provide
// installs all programs of needs. It needs root and apt-get. Without them, it returns one
// *missingError that names all missing programs. It writes its steps to log.
func Provide(ctx context.Context, log io.Writer, programs ...string) error {
	lack := missing(programs)
	if len(lack) == 0 {
		return nil
	}
	lacking := &missingError{Needs: lack}
	apt, err := exec.LookPath("apt-get")
	if os.Geteuid() != 0 || err != nil {
		return lacking
	}
	fmt.Fprintf(log, "installing %v\n", lacking.Packages())
	if err := install(ctx, apt, lacking.Packages(), log); err != nil {
		return fmt.Errorf("%w\n%w", err, lacking)
	}
	if still := missing(programs); len(still) > 0 {
		return fmt.Errorf("apt-get succeeded, and yet: %w", &missingError{Needs: still})
	}
	return nil
}

// install runs apt-get. It prevents the packages from starting their servers, because the
// tests start private ones and must not use the machine's default ports.
func install(ctx context.Context, apt string, packages []string, log io.Writer) error {
	undo, err := forbidServices()
	if err != nil {
		return err
	}
	defer undo()
	for _, args := range [][]string{
		{"update", "-q"},
		append([]string{"install", "-q", "-y", "--no-install-recommends"}, packages...),
	} {
		cmd := exec.CommandContext(ctx, apt, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.Stdout, cmd.Stderr = log, log
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("apt-get %s: %w", args[0], err)
		}
	}
	return nil
}

// forbidServices writes the two files that prevent Debian packages from starting a server and from
// creating a first cluster. It does not replace files that exist. The function undo removes the
// files that forbidServices wrote.
func forbidServices() (undo func(), err error) {
	var made []string
	undo = func() {
		for _, path := range made {
			_ = os.Remove(path)
			// dpkg may have stored the package's file under this name, because our file existed.
			_ = os.Rename(path+".ucf-dist", path)
		}
	}
	for _, answer := range []struct {
		path, text string
		mode       os.FileMode
	}{
		{"/usr/sbin/policy-rc.d", "#!/bin/sh\n# Written by Headgate's tests while they install packages.\nexit 101\n", 0o755},
		{
			"/etc/postgresql-common/createcluster.conf",
			"# Written by Headgate's tests while they install packages.\ncreate_main_cluster = false\n", 0o644,
		},
	} {
		if err := os.MkdirAll(filepath.Dir(answer.path), 0o755); err != nil {
			undo()
			return nil, err
		}
		f, err := os.OpenFile(answer.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, answer.mode)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			undo()
			return nil, err
		}
		made = append(made, answer.path)
		_, err = f.WriteString(answer.text)
		if err := errors.Join(err, f.Chmod(answer.mode), f.Close()); err != nil {
			undo()
			return nil, err
		}
	}
	return undo, nil
}
