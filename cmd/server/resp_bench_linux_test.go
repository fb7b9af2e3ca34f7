//go:build linux && !quick

package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkRESP measures HEADGATE.CHECK with pipelines of 64 in embedded mode, and PING as the baseline, which decides
// nothing. The contenders take turns, a second each. The processor time is that of the node, without the client.
//
//	checks/s      on 4 connections, median
//	checks/cpu-s  for each second of processor time, median
//	x-ping        of the baseline's commands for each second of processor time, median
func BenchmarkRESP(b *testing.B) {
	process := launch(b, map[string]string{"HEADGATE_DATABASE_URL": sqliteIn(b.TempDir()), "HEADGATE_RESP_ADDR": "127.0.0.1:0"}).serving()
	_, addr, _, key := respPlan(b, process.running)
	stat := fmt.Sprintf("/proc/%d/stat", process.command.Process.Pid)
	random := rand.New(rand.NewPCG(1, 2))
	var checks, pings [][]byte
	for range 200 {
		var check, ping bytes.Buffer
		for range 64 {
			user := fmt.Sprintf("%04d", random.IntN(10_000))
			check.WriteString("*7\r\n$14\r\nHEADGATE.CHECK\r\n$1\r\n-\r\n$9\r\n/v1/other\r\n$4\r\nuser\r\n$4\r\n" + user +
				"\r\n$6\r\nMETHOD\r\n$3\r\nGET\r\n")
			ping.WriteString("*2\r\n$4\r\nPING\r\n$1\r\n*\r\n")
		}
		checks, pings = append(checks, check.Bytes()), append(pings, ping.Bytes())
	}
	var rates, perCPU, ratios []float64
	for range max(b.N, 5) {
		_, base := respRate(b, stat, addr, key, pings)
		rate, cpu := respRate(b, stat, addr, key, checks)
		rates, perCPU, ratios = append(rates, rate), append(perCPU, cpu), append(ratios, cpu/base)
	}
	b.ReportMetric(median(rates), "checks/s")
	b.ReportMetric(median(perCPU), "checks/cpu-s")
	b.ReportMetric(median(ratios), "x-ping")
	b.ReportMetric(0, "ns/op") // a round, which says nothing
}

// respRate sends pipelines of 64 commands for a second. Each reply has one asterisk. It returns the commands
// for each second, and for each second of processor time.
func respRate(b *testing.B, stat, addr, key string, pipelines [][]byte) (rate, perCPU float64) {
	b.Helper()
	var commands atomic.Int64
	var wait sync.WaitGroup
	begin, cpu := time.Now(), processorTime(b, stat)
	for i := range 4 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Write([]byte("AUTH " + key + "\r\n")); err != nil {
			b.Fatal(err)
		}
		wait.Go(func() {
			defer conn.Close()
			buffer := make([]byte, 64<<10)
			for n := i; time.Since(begin) < time.Second; n++ {
				if _, err := conn.Write(pipelines[n%len(pipelines)]); err != nil {
					b.Error(err)
					return
				}
				for replies := 0; replies < 64; {
					read, err := conn.Read(buffer)
					if err != nil || bytes.IndexByte(buffer[:read], '-') == 0 {
						b.Errorf("%q, %v", buffer[:read], err)
						return
					}
					replies += bytes.Count(buffer[:read], []byte("*"))
				}
				commands.Add(64)
			}
		})
	}
	wait.Wait()
	n := float64(commands.Load())
	return n / time.Since(begin).Seconds(), n / (processorTime(b, stat) - cpu).Seconds()
}

// processorTime returns the processor time of a process, from the fields utime and stime of its stat file, which count
// in hundredths of a second.
func processorTime(b *testing.B, stat string) time.Duration {
	b.Helper()
	text, err := os.ReadFile(stat)
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	var ticks int64
	for _, field := range strings.Fields(after)[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
