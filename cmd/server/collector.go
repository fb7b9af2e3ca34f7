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

// gcPercent is GOGC of a serving node: the heap grows to five times what is
// live before it is collected. A check makes about 1.5 KB of garbage, and the
// live heap of a small node is about 10 MB, so that Go's own default of 100
// collects several times a second. ADR 0019 has the measurements.
const gcPercent = 400

// limitParts is the share of a cgroup's memory, in hundredths, that the heap may
// take: the rest is for the binary, the stacks and the kernel's buffers.
const limitParts = 90

// collectorDefaults returns what the garbage collector is set to: GOGC, and
// GOMEMLIMIT in bytes. 0 leaves what is set. A variable in the environment wins
// over either. root is the root of the file system.
func collectorDefaults(getenv func(string) string, root fs.FS) (percent int, limit int64) {
	if getenv("GOGC") == "" {
		percent = gcPercent
	}
	if getenv("GOMEMLIMIT") == "" {
		limit = cgroupMemory(root) / 100 * limitParts
	}
	return percent, limit
}

// cgroupMemory returns the smallest memory.max, in bytes, of the process' cgroup
// (version 2) and those above it; 0 without a limit.
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

// tuneCollector sets the garbage collector for a serving node.
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
