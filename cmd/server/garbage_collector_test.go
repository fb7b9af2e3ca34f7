package main

import (
	"testing"
	"testing/fstest"
)

func TestCollectorDefaults(t *testing.T) {
	t.Parallel()
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		env     map[string]string
		files   fstest.MapFS
		percent int
		limit   int64
	}{
		"no cgroup": {percent: 400},
		"a container of 1 GB": {
			files:   fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1000000000\n")},
			percent: 400, limit: 900_000_000,
		},
		"a container without a limit": {
			files:   fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("max\n")},
			percent: 400,
		},
		"the smallest limit of a service and its slice": {
			files: fstest.MapFS{
				"proc/self/cgroup": file("1:name=systemd:/x\n0::/system.slice/headgate.service\n"),
				"sys/fs/cgroup/system.slice/headgate.service/memory.max": file("max\n"),
				"sys/fs/cgroup/system.slice/memory.max":                  file("200000000\n"),
				"sys/fs/cgroup/x/memory.max":                             file("100\n"),
			},
			percent: 400, limit: 180_000_000,
		},
		"the service's own limit": {
			files: fstest.MapFS{
				"proc/self/cgroup":                 file("0::/a/b\n"),
				"sys/fs/cgroup/a/b/memory.max":     file("100000000\n"),
				"sys/fs/cgroup/a/memory.max":       file("300000000\n"),
				"sys/fs/cgroup/memory.max":         file("400000000\n"),
				"sys/fs/cgroup/other/b/memory.max": file("100\n"),
			},
			percent: 400, limit: 90_000_000,
		},
		"the environment wins": {
			env:   map[string]string{"GOGC": "100", "GOMEMLIMIT": "1GiB"},
			files: fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1000000000\n")},
		},
		"GOGC alone in the environment": {
			env:   map[string]string{"GOGC": "off"},
			files: fstest.MapFS{"proc/self/cgroup": file("0::/\n"), "sys/fs/cgroup/memory.max": file("1000000000\n")},
			limit: 900_000_000,
		},
	} {
		percent, limit := collectorDefaults(func(name string) string { return c.env[name] }, c.files)
		if percent != c.percent || limit != c.limit {
			t.Errorf("%s: GOGC %d and a limit of %d bytes, want %d and %d", name, percent, limit, c.percent, c.limit)
		}
	}
}
