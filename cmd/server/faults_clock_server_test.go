//go:build faults

package main

import (
	"debug/elf"
	little "encoding/binary"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// nodeClockShim is machine code (amd64) in place of the clock_gettime of the vDSO: it calls the
// function at the address in bytes 8 to 15, and adds the number in bytes 30 to 37 to the seconds of
// CLOCK_REALTIME.
var nodeClockShim = []byte{
	0x57,                   // push rdi
	0x56,                   // push rsi
	0x48, 0x83, 0xec, 0x08, // sub rsp, 8
	0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, // movabs rax, the address
	0xff, 0xd0, // call rax
	0x48, 0x83, 0xc4, 0x08, // add rsp, 8
	0x5e,       // pop rsi
	0x5f,       // pop rdi
	0x85, 0xff, // test edi, edi
	0x75, 0x0d, // jne the last instruction
	0x48, 0xb9, 0, 0, 0, 0, 0, 0, 0, 0, // movabs rcx, the seconds
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // ret
}

// moveClock moves the wall clock of a running node once; its timers stay as they are. A Go program
// has the address of clock_gettime in a variable. moveClock writes nodeClockShim over the code of a
// function that a node never calls, and its address into the variable. So the node is the
// program that users run, which has no setting for its clock.
func moveClock(t *testing.T, p *process, by time.Duration) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Fatal("this scenario needs Linux on amd64")
	}
	program, err := elf.Open(p.command.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	symbols, err := program.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]int64{}
	for _, s := range symbols {
		if s.Name == "runtime.vdsoClockgettimeSym" || s.Name == "main.benchCommand.Run" && s.Size >= uint64(len(nodeClockShim)) {
			at[s.Name] = int64(s.Value)
		}
	}
	variable, unused := at["runtime.vdsoClockgettimeSym"], at["main.benchCommand.Run"]
	if variable == 0 || unused == 0 {
		t.Fatalf("the program lacks a symbol: %v", at)
	}
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", p.command.Process.Pid), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	signal := func(s syscall.Signal) {
		if err := p.command.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	address, code := make([]byte, 8), append([]byte(nil), nodeClockShim...)
	_, err = memory.ReadAt(address, variable)
	if err == nil {
		copy(code[8:16], address)
		little.LittleEndian.PutUint64(code[30:38], uint64(int64(by/time.Second)))
		_, err = memory.WriteAt(code, unused)
	}
	if err == nil {
		little.LittleEndian.PutUint64(address, uint64(unused))
		_, err = memory.WriteAt(address, variable)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// nodeClocks moves the clocks of two of three nodes by 10 min in both directions. Redis' clock
// decides: each limit admits exactly its quota, no wait is longer than its window, a session is
// accepted on each node, and the System page names both clocks.
func nodeClocks(t *testing.T) (row faultRow) {
	f := startCluster(t, 3, map[string]string{"HEADGATE_ADMIN_EMAIL": "ann@example.com", "HEADGATE_ADMIN_PASSWORD": ownerPassword})
	const quota = 100
	limits := maps.Clone(exactAlgorithms)
	limits["calendar"] = `"algorithm": "fixed_window", "window": "month"`
	var policies []string
	for name, limit := range limits {
		limit = regexp.MustCompile(`"(1|366)d"`).ReplaceAllString(limit, `"24h"`)
		if name == "bucket" || name == "gcra" { // no refill within the test
			limit = exactAlgorithms[name]
		}
		policies = append(policies, fmt.Sprintf(`{"slug": "%s", "match": {"path": "/%[1]s"}, "count_by": ["user"], "on_failure": "closed",
			"limits": [{%s, "quota": %d}]}`, name, limit, quota))
	}
	f.publish("clocks", "["+strings.Join(policies, ",")+"]")
	f.tenant("clocks", "clocks")
	moves := []time.Duration{10 * time.Minute, 0, -10 * time.Minute}
	for i, by := range moves {
		if by != 0 {
			moveClock(t, f.nodes[i], by)
		}
		date, err := http.ParseTime(call(t, "", "GET", f.nodes[i].origin+"/livez", "").header.Get("Date"))
		if off := time.Until(date) - by; err != nil || off.Abs() > time.Minute {
			t.Fatalf("the clock of node %d is off by %s, want %s (%v)", i, time.Until(date), by, err)
		}
	}
	longest := 0
	for name := range limits {
		admitted := 0
		for i := range 3 * quota {
			a := call(t, bootstrap, "POST", f.nodes[i%3].origin+"/v1/check", fmt.Sprintf(`{"tenant": "clocks", "path": "/%s", "attributes": {"user": "u"}}`, name))
			switch a.status {
			case http.StatusOK:
				admitted++
			case http.StatusTooManyRequests:
				if after, _ := strconv.Atoi(a.header.Get("Retry-After")); name == "fixed" {
					longest = max(longest, after)
				}
			default:
				t.Fatalf("%s: %d %s", name, a.status, a.body)
			}
		}
		if admitted != quota {
			t.Errorf("%s: %d checks are admitted, want exactly %d", name, admitted, quota)
		}
	}
	if longest > 24*3600 {
		t.Errorf("a window of 24 h is denied for %d s", longest)
	}
	for from := range f.nodes {
		person := newBrowser(t, f.nodes[from].origin)
		person.signIn("ann@example.com", ownerPassword).want(t, 303)
		for to := range f.nodes {
			person.at(f.nodes[to].origin).get("/account").want(t, http.StatusOK)
		}
	}
	operator := newBrowser(t, f.nodes[1].origin)
	operator.signIn("ann@example.com", ownerPassword).want(t, 303)
	eventually(t, "the System page names both clocks", func() bool {
		page := operator.get("/system").body
		return strings.Contains(page, "ahead of the database") && strings.Contains(page, "behind the database")
	})
	row.measure = fmt.Sprintf("%d limits of %d units admit exactly their quota on the three nodes in turn; sessions of each node work on the others; "+
		"no wait is longer than the window", len(limits), quota)
	row.seen = "System page: its clock is 10 min ahead of, and 10 min behind, the database's"
	row.closed = "0"
	return row
}
