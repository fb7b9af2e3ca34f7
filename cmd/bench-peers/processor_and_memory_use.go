package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/servertest/process"
)

// ticksPerSecond is the number of clock ticks in a second. /proc reports processor times in clock
// ticks.
const ticksPerSecond = 100

// processor returns the processor time of a process in seconds. It is the user time plus the system
// time of all threads of the process.
func processor(pid int) (float64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The line begins with "pid (name) state". The name may contain spaces, so the fields are
	// counted after the last parenthesis. utime and stime are the fields 14 and 15 of the line.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("/proc/%d/stat has no times", pid)
	}
	return (user + system) / ticksPerSecond, nil
}

// ownProcessor returns the processor time of this process in seconds.
func ownProcessor() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// A usage holds processor times in seconds. ours is the time of this command, its children and
// Redis since they started. The other times are those of the whole machine since it started.
type usage struct {
	at           time.Time
	ours         float64
	busy, stolen float64 // of the whole machine; stolen is the time that the host gave to other virtual machines
}

// use returns the processor times up to now: of this command with its children, and of the whole
// machine.
func (b *bench) use() usage {
	u := usage{at: time.Now(), ours: ownProcessor() + b.ended}
	for _, c := range b.children {
		seconds, _ := processor(c.pid())
		u.ours += seconds
	}
	seconds, _ := processor(b.redis.pid)
	u.ours += seconds
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, field := range strings.Fields(line) {
		ticks, _ := strconv.ParseFloat(field, 64)
		switch i {
		case 1, 2, 3, 6, 7: // user, nice, system, irq, softirq
			u.busy += ticks / ticksPerSecond
		case 8:
			u.stolen += ticks / ticksPerSecond
		}
	}
	return u
}

// others returns a text for the report: which part of the processor time other programs used from
// the time of before to the time of u.
func (u usage) others(before usage) string {
	all := u.at.Sub(before.at).Seconds() * float64(runtime.NumCPU())
	other := max(0, u.busy-before.busy-(u.ours-before.ours))
	return fmt.Sprintf("%.0f%% of the processors went to other processes, and %.0f%% to other guests of the host",
		100*other/all, 100*(u.stolen-before.stolen)/all)
}

// A machine describes the machine on which a run took place.
type machine struct{ cpu, kernel, redis, commit string }

var modelName = regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`)

func describe(ctx context.Context, r *redisServer) machine {
	output := func(name string, args ...string) string {
		out, _ := exec.CommandContext(ctx, name, args...).Output()
		return strings.TrimSpace(string(out))
	}
	m := machine{cpu: runtime.GOARCH, kernel: output("uname", "-sr"), redis: r.version}
	m.commit = output("git", "describe", "--always", "--dirty")
	info, _ := os.ReadFile("/proc/cpuinfo")
	if name := modelName.FindSubmatch(info); name != nil {
		m.cpu = string(name[1])
	}
	return m
}

// A redisServer is the private Redis server that all contenders use.
type redisServer struct {
	url, unixURL, address, password, version string
	pid                                      int
	client                                   *redis.Client
	server                                   *process.Redis
}

// socketName is the file name of the server's Unix socket in its folder.
const socketName = "redis.sock"

func startRedis(ctx context.Context) (_ *redisServer, err error) {
	server, err := process.StartRedis("--unixsocket", socketName, "--unixsocketperm", "700")
	if err != nil {
		return nil, err
	}
	r := &redisServer{server: server, url: server.URL()}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	o, err := redis.ParseURL(r.url)
	if err != nil {
		return nil, err
	}
	r.address, r.password = o.Addr, o.Password
	r.client = redis.NewClient(o)
	folder, err := r.client.ConfigGet(ctx, "dir").Result()
	if err != nil {
		return nil, err
	}
	r.unixURL = "unix://default:" + r.password + "@" + folder["dir"] + "/" + socketName
	info, err := r.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	r.version = info["Server"]["redis_version"]
	r.pid, err = strconv.Atoi(info["Server"]["process_id"])
	return r, err
}

func (r *redisServer) stop() {
	if r.client != nil {
		_ = r.client.Close()
	}
	r.server.Close()
}
