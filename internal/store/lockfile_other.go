//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package store

import "errors"

// tryLock always returns an error, because this operating system has no flock. Without a lock, two
// processes could serve one database file.
func (l *lockFile) tryLock() (held bool, err error) {
	return false, errors.New("sqlite is not supported on this system, which has no flock: use postgres")
}
