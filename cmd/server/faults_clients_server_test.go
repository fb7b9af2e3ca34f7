//go:build faults

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// startHot sends as many checks for one key with a small limit as the load sends for all
// other keys. The returned function waits for the last answer and returns the number of
// admitted checks.
func startHot(b *faultBench) func() int64 {
	var admitted atomic.Int64
	var asking sync.WaitGroup
	b.cluster.tenant("hot", "faults")
	check := strings.Replace(faultKey{mode: "closed", narrow: true, user: 1}.check(), `"faults"`, `"hot"`, 1)
	begin := time.Now()
	asking.Go(func() {
		for n := 0; b.ctx.Err() == nil; n++ {
			await(begin.Add(time.Duration(n) * time.Second / faultRate))
			asking.Go(func() {
				a, err := tryCall(b.Context(), bootstrap, "POST", b.cluster.nodes[n%3].origin+"/v1/check", check)
				if err == nil && a.status == http.StatusOK {
					admitted.Add(1)
				}
			})
		}
	})
	return func() int64 {
		asking.Wait()
		return admitted.Load()
	}
}

// slowClients sends the headers of requests byte by byte, or sends many requests and reads no
// response. The nodes close all these connections.
func slowClients(b *faultBench) {
	var open atomic.Int64
	conns := b.dial(1000)
	open.Store(int64(len(conns)))
	for i, c := range conns {
		b.during.Go(func() {
			defer open.Add(-1)
			defer c.Close()
			if i < 100 {
				_ = c.(*net.TCPConn).SetReadBuffer(4096)
				_ = c.SetDeadline(time.Now().Add(19 * time.Second))
				_, _ = io.WriteString(c, strings.Repeat("GET /openapi.yaml HTTP/1.1\r\nHost: headgate\r\n\r\n", 100))
				_, _ = c.Read(make([]byte, 1))
				for { // a reset shows when the node has closed
					if _, err := c.Write([]byte("\r\n")); err != nil {
						return
					}
					await(time.Now().Add(100 * time.Millisecond))
				}
			}
			ended := make(chan struct{})
			go func() {
				_, _ = io.Copy(io.Discard, c)
				close(ended)
			}()
			for _, letter := range post("/v1/check", "{}") {
				if _, err := c.Write([]byte{letter}); err != nil {
					return
				}
				select {
				case <-ended:
					return
				case <-b.ctx.Done():
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	b.during.Go(func() {
		await(time.Now().Add(17 * time.Second))
		if n := open.Load(); n > 0 {
			b.Errorf("%d of 1,000 slow clients are connected after 17 s", n)
		}
	})
}

// largeBodies sends 1,000 batches at once to one node. A third announces a body above the bound and
// sends none of it, a third sends one byte more than the bound in chunks, and a third does not
// complete a body of the largest size. Each gets an answer, none of them from a whole body, and the
// memory of the node stays bounded.
func largeBodies(b *faultBench) {
	const size = 1 << 20
	origin := b.cluster.nodes[1].origin
	memory := func() float64 {
		const name = "process_resident_memory_bytes "
		v, err := strconv.ParseFloat(strings.TrimPrefix(line(call(b, "", "GET", origin+"/metrics", "").body, name), name), 64)
		if err != nil {
			b.Error(err)
		}
		return v
	}
	before := memory()
	var mu sync.Mutex
	answers := map[string]int{}
	head := "POST /v1/check/batch HTTP/1.1\r\nHost: headgate\r\nAuthorization: Bearer " + bootstrap + "\r\nContent-Type: application/json\r\n"
	spaces := strings.Repeat(" ", size)
	forms := map[string]string{
		"announced": fmt.Sprintf("%sContent-Length: %d\r\n\r\n", head, size+1),
		"chunks":    fmt.Sprintf("%sTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n1\r\n \r\n", head, size, spaces),
		"part":      fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, size, spaces[1:]),
	}
	var sent sync.WaitGroup
	for i := range 1000 {
		name := []string{"announced", "chunks", "part"}[i%3]
		sent.Go(func() {
			status := "no answer"
			if c, err := net.Dial("tcp", strings.TrimPrefix(origin, "http://")); err == nil {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				go func() { _, _ = io.WriteString(c, forms[name]) }() // fails where the node answers before
				if r, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
					status = strconv.Itoa(r.StatusCode)
					_ = r.Body.Close()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			answers[name+" "+status]++
		})
	}
	most := make(chan float64)
	ended := make(chan struct{})
	go func() {
		var peak float64
		for {
			peak = max(peak, memory())
			select {
			case <-ended:
				most <- peak
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	b.during.Go(func() {
		sent.Wait()
		close(ended)
		grown := (<-most - before) / (1 << 20)
		b.Logf("answers: %v; memory grows by %.0f MB", answers, grown)
		// What was announced too large is rejected before its body. Of the others, some find no
		// room (503); the rest is rejected as too large (413), or ends early (400).
		if answers["announced 413"] != 334 || answers["chunks 413"]+answers["chunks 503"] != 333 || answers["part 400"]+answers["part 503"] != 333 {
			b.Errorf("answers: %v", answers)
		}
		if grown > 256 {
			b.Errorf("the memory of the node grows by %.0f MB, want less than a quarter of the bodies", grown)
		}
	})
}
