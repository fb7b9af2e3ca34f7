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

// gcPercent is the default of GOGC: a garbage collection starts when the heap is five times as
// large as the live objects. A check allocates about 1.5 KB, and the live objects of a small node
// take about 10 MB. So Go's default of 100 would cause several collections per second. ADR 0019 has
// the measurements.
const gcPercent = 400

// limitParts is the default of GOMEMLIMIT, in percent of the memory limit of the cgroup. The rest
// of the memory is for the binary, the stacks and kernel buffers.
const limitParts = 90

// collectorDefaults returns the values to set for GOGC, in percent, and for GOMEMLIMIT, in bytes. A
// value is 0 if the setting must stay as it is, because the environment sets it or because no
// memory limit is known. root is the root of the file system, from which the limit of the cgroup is
// read.
func collectorDefaults(getenv func(string) string, root fs.FS) (percent int, limit int64) {
	if getenv("GOGC") == "" {
		percent = gcPercent
	}
	if getenv("GOMEMLIMIT") == "" {
		limit = cgroupMemory(root) / 100 * limitParts
	}
	return percent, limit
}

// cgroupMemory returns the smallest memory.max of the cgroup of this process (version 2) and its
// parents, in bytes. If there is no limit, it returns 0.
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

// tuneCollector configures the garbage collector of this process with collectorDefaults.
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
