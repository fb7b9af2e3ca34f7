//go:build faults

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The load of a scenario sends checks at fixed times, so that a stopped node also gets its
// part. The checks are spread over the nodes.
const (
	faultRate    = 400 // checks per second, on all nodes together
	wideUsers    = 100 // keys of a failure mode that never reach their quota
	narrowUsers  = 10  // keys of a failure mode that reach it in the middle of the fault
	wideQuota    = 1_000_000
	faultTimeout = 10 * time.Second // of one check; a check without a response for longer counts as hung
)

// A faultKey is one counter of the load.
type faultKey struct {
	mode   string // open, closed, local
	narrow bool
	user   int
}

func (k faultKey) check() string {
	size := "wide"
	if k.narrow {
		size = "narrow"
	}
	return fmt.Sprintf(`{"tenant": "faults", "path": "/%s/%s", "attributes": {"user": "u%d"}}`, k.mode, size, k.user)
}

// faultPolicies returns the six policies of the load.
func faultPolicies(narrow int) string {
	var policies []string
	for _, mode := range exactModes {
		for size, quota := range map[string]int{"wide": wideQuota, "narrow": narrow} {
			policies = append(policies, fmt.Sprintf(`{"slug": "%s-%s", "match": {"path": "/%[1]s/%[2]s"}, "count_by": ["user"],
				"on_failure": %[1]q, "limits": [{"algorithm": "fixed_window", "window": "1d", "quota": %[3]d}]}`, mode, size, quota))
		}
	}
	return "[" + strings.Join(policies, ",") + "]"
}

// faultKeyAt returns the key of check number n. Half of the checks use wide keys.
func faultKeyAt(n int) faultKey {
	k := faultKey{mode: exactModes[n%len(exactModes)], narrow: n/len(exactModes)%2 == 0}
	k.user = n / (2 * len(exactModes)) % wideUsers
	if k.narrow {
		k.user %= narrowUsers
	}
	return k
}

// A faultAnswer is one line of the ledger.
type faultAnswer struct {
	key      faultKey
	node     int
	due      time.Time // the time at which the check had to be sent
	took     time.Duration
	status   int // 0: no answer
	allowed  bool
	degraded bool
	reason   string
	problem  string // the type of a problem document
}

// charged reports whether Redis charged the check, according to the response. unknown is true
// if the response does not show it.
func (a *faultAnswer) charged() (charged, unknown bool) {
	switch {
	case a.status == http.StatusOK && !a.degraded:
		return true, false
	case a.status == 0 || a.degraded:
		return false, true
	}
	return false, false
}

// A faultLoad sends checks until it is ended.
type faultLoad struct {
	client  *http.Client
	origins []string
	mu      sync.Mutex
	ledger  []faultAnswer
	cancel  context.CancelFunc
	done    chan struct{}
}

// startFaultLoad starts a load of rate checks per second.
func startFaultLoad(ctx context.Context, origins []string, rate int) *faultLoad {
	ctx, cancel := context.WithCancel(ctx)
	l := &faultLoad{
		client:  &http.Client{Timeout: faultTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 256}},
		origins: origins, cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		defer close(l.done)
		var waiting sync.WaitGroup
		defer waiting.Wait()
		began := time.Now()
		for n := 0; ; n++ {
			due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(due)):
			}
			waiting.Go(func() { l.ask(n, due) })
		}
	}()
	return l
}

func (l *faultLoad) ask(n int, due time.Time) {
	// The factor spreads the checks of each key over the nodes.
	a := faultAnswer{key: faultKeyAt(n), node: int(uint32(n)*2654435761>>16) % len(l.origins), due: due}
	request, err := http.NewRequest(http.MethodPost, l.origins[a.node]+"/v1/check", bytes.NewReader([]byte(a.key.check())))
	if err != nil {
		panic(err) // the address is the node's own
	}
	request.Header.Set("Authorization", "Bearer "+bootstrap)
	request.Header.Set("Content-Type", "application/json")
	if response, err := l.client.Do(request); err == nil {
		var read struct {
			verdict
			Type string
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err == nil && json.Unmarshal(body, &read) == nil {
			a.status, a.allowed, a.degraded, a.reason, a.problem = response.StatusCode, read.Allowed, read.Degraded, read.Reason, read.Type
		}
	}
	a.took = time.Since(due)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger = append(l.ledger, a)
}

// end stops the load, waits for the last responses, and returns the ledger.
func (l *faultLoad) end() []faultAnswer {
	l.cancel()
	<-l.done
	l.client.CloseIdleConnections()
	return l.ledger
}

// quantile returns a percentile of the latencies of the checks that had to be sent in a time
// range. It returns 0 if there were none.
func quantile(ledger []faultAnswer, from, to time.Time, q float64) time.Duration {
	var took []time.Duration
	for _, a := range ledger {
		if !a.due.Before(from) && a.due.Before(to) {
			took = append(took, a.took)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(int(q*float64(len(took))), len(took)-1)]
}
