package main

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// gcPercent is the default of GOGC: the heap may grow to five times the live heap before a
// garbage collection. A check allocates about 1.5 KB, and the live heap of a small node is
// about 10 MB, so that Go's default of 100 collects several times per second. ADR 0019 has the
// measurements.
const gcPercent = 400

// limitParts is the percentage of the cgroup's memory that is the default of GOMEMLIMIT. The
// rest is for the binary, the stacks and kernel buffers.
const limitParts = 90

// collectorDefaults returns the defaults of GOGC and of GOMEMLIMIT in bytes. A 0 means that
// Go's setting stays, because the environment sets the variable or no limit is known. root is
// the root of the file system, where it reads the cgroup's limit.
func collectorDefaults(getenv func(string) string, root fs.FS) (percent int, limit int64) {
	if getenv("GOGC") == "" {
		percent = gcPercent
	}
	if getenv("GOMEMLIMIT") == "" {
		limit = cgroupMemory(root) / 100 * limitParts
	}
	return percent, limit
}

// cgroupMemory returns the smallest memory.max, in bytes, of the process's cgroup (version 2)
// and its parents. It returns 0 if there is no limit.
func cgroupMemory(root fs.FS) (limit int64) {
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(own)) {
		group, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for at := group; v2; at = path.Dir(at) {
			text, err := fs.ReadFile(root, path.Join("sys/fs/cgroup", at, "memory.max"))
			n, isNumber := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
			if err == nil && isNumber == nil && n > 0 && (limit == 0 || n < limit) {
				limit = n
			}
			if at == "." || at == "" || at == "/" {
				break
			}
		}
	}
	return limit
}

// tuneCollector applies collectorDefaults to the garbage collector of this process.
func tuneCollector(getenv func(string) string, log *slog.Logger) {
	percent, limit := collectorDefaults(getenv, os.DirFS("/"))
	if percent > 0 {
		debug.SetGCPercent(percent)
	}
	if limit > 0 {
		debug.SetMemoryLimit(limit)
	}
	if percent > 0 || limit > 0 {
		log.Info("garbage collector", "GOGC", percent, "GOMEMLIMIT", limit)
	}
}
