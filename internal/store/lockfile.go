package store

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// A lockFile is an advisory lock on a file in the folder of the database. The operating system
// releases the lock when the process ends. The file is never deleted. Otherwise, one process could
// hold the lock of the deleted file while another process locks a new file of the same name.
type lockFile struct{ f *os.File }

func openLockFile(path string) (*lockFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock file: %w", err)
	}
	return &lockFile{f}, nil
}

func (l *lockFile) unlock() error { return l.f.Close() }

// lockServing locks the database file at path, so that no second process serves it. It writes
// the ID of this process to the lock file. It returns an error if another process has the lock.
func lockServing(path string) (*lockFile, error) {
	l, err := openLockFile(path + ".serve.lock")
	if err != nil {
		return nil, err
	}
	held, err := l.tryLock()
	if err == nil && !held {
		err = fmt.Errorf("%s is served by another headgate (process %s): stop it first, or name another database", path, l.holder())
	}
	if err == nil {
		err = l.sign()
	}
	if err != nil {
		_ = l.unlock()
		return nil, err
	}
	return l, nil
}

// sign writes the ID of this process into the lock file.
func (l *lockFile) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	if _, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0); err != nil {
		return fmt.Errorf("write the lock file: %w", err)
	}
	return nil
}

// holder returns the process ID in the lock file, for an error message.
func (l *lockFile) holder() string {
	text, _ := io.ReadAll(io.LimitReader(l.f, 32))
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return strconv.Itoa(pid)
	}
	return "unknown" // the other process holds the lock, but has not written its ID yet
}
