//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import "errors"

// tryLock refuses: without a lock two processes could serve one file.
func (l *lockFile) tryLock() (held bool, err error) {
	return false, errors.New("sqlite is not supported on this system, which has no flock: use postgres")
}
