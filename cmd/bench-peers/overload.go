package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"net"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/load"
)

// The loads of the group overload. With fullConnections connections, a node is fully loaded. With
// overloadConnections connections, more checks arrive than the node can decide.
//
// The comparison of tenants uses equalTenants tenants. First, each tenant sends checks on
// equalConnections connections, which fully loads the node. Then one tenant, the flood, sends on
// floodFactor times as many connections.
const (
	fullConnections     = 64
	overloadConnections = 1000
	equalTenants        = 10
	equalConnections    = 6
	floodFactor         = 20
)

// overloaded contains the services of the group overload. noop has no tenants, so it does not take
// part in the comparison of tenants. The results of noop show how much time the kernel, the Go
// runtime and the load generator need for the additional connections.
var overloaded = []string{embedded, exactTCP, noop}

// underLoad returns the name of a service in the results of the group overload, if one tenant sends
// on this number of connections.
func underLoad(name string, connections int) string {
	return fmt.Sprintf("%s, %d connections", name, connections)
}

// beside returns the name of a service in the results of the group overload, if equalTenants
// tenants send checks. flood is set if one of them sends more than the others.
func beside(name string, flood bool) string {
	if flood {
		return name + ", beside a flood"
	}
	return name + ", all alike"
}

// measureOverload makes two measurements. The first is how many checks a node decides if more
// checks arrive than it can decide. The second is how long the checks of nine tenants take while a
// tenth tenant sends either as much as each of them, or floodFactor times as much.
func (b *bench) measureOverload(ctx context.Context) (err error) {
	// The load generator uses one thread, as in the group http.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var contenders []contender
	for _, name := range overloaded {
		s := b.service(name)
		for _, connections := range []int{fullConnections, overloadConnections} {
			contenders = append(contenders, b.serviceContender(s, shape{connections: connections, seconds: b.seconds}, underLoad(name, connections)))
		}
		if s.operator == "" {
			continue
		}
		tenants, err := s.tenants(ctx)
		if err != nil {
			return err
		}
		for _, flood := range []bool{false, true} {
			contenders = append(contenders, b.tenantsContender(s, tenants, flood))
		}
	}
	b.results.overload, err = b.rotate(ctx, "overload", contenders)
	return err
}

// A tenant holds the API key of one tenant, and the request that the tenant sends on all its
// connections.
type tenant struct {
	key     string
	request load.Request
}

// tenants creates equalTenants tenants, each with an API key.
func (s *service) tenants(ctx context.Context) ([]tenant, error) {
	var tenants []tenant
	for i := range equalTenants {
		slug := fmt.Sprintf("bench-%d", i)
		body := fmt.Sprintf(`{"slug": %q, "tenant": {"name": "bench", "plan": "bench"}}`, slug)
		status, _, answer, err := s.call(ctx, s.operator, "/v1/tenants", body, "")
		if err = wants(status, answer, err); err != nil {
			return nil, err
		}
		status, _, answer, err = s.call(ctx, s.operator, "/v1/tenants/"+slug+"/keys", `{"name": "bench", "scopes": ["check"]}`, "")
		if err = wants(status, answer, err); err != nil {
			return nil, err
		}
		var made struct{ Token string }
		if err := json.Unmarshal([]byte(answer), &made); err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant{made.Token, checkRequest(s.address, made.Token)})
	}
	return tenants, nil
}

func checkRequest(address, key string) load.Request {
	return load.NewRequest(address, "/v1/check", checkBody, users, "Authorization: Bearer "+key)
}

// tenantsContender returns a contender that sends the requests of all tenants at the same time. Its
// slot contains the checks of all tenants except the last one. A second process sends the checks of
// the last tenant. If one process sent the checks of all tenants, the connections of the last
// tenant would delay the other tenants inside the load generator.
func (b *bench) tenantsContender(s *service, tenants []tenant, flood bool) contender {
	return contender{beside(s.name, flood), func(ctx context.Context) (slot, error) {
		connections := equalConnections
		if flood {
			connections *= floodFactor
		}
		last := len(tenants) - 1
		other, err := b.startSender(s.address, tenants[last].key, connections)
		if err != nil {
			return slot{}, err
		}
		defer b.stopSender(other)
		return b.measure(ctx, s, func(ctx context.Context) (*load.Result, error) {
			results, errs := make([]*load.Result, last), make([]error, last)
			var wait sync.WaitGroup
			for i, t := range tenants[:last] {
				cfg := load.Config{
					Dial: s.dial, Request: t.request, Connections: equalConnections, Duration: time.Duration(b.seconds * float64(time.Second)),
				}
				wait.Go(func() { results[i], errs[i] = load.Run(ctx, cfg) })
			}
			wait.Wait()
			if err := errors.Join(errs...); err != nil {
				return nil, err
			}
			for _, r := range results[1:] {
				results[0].Merge(r)
			}
			return results[0], nil
		})
	}}
}

// senderKey is the environment variable that contains the API key for the command send.
const senderKey = "BENCH_KEY"

var isSending = regexp.MustCompile("(sending)")

// startSender starts a process that sends checks on a number of connections, with the given API
// key. It returns when all connections are open.
func (b *bench) startSender(address, key string, connections int) (*child, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c, err := b.start("send", []string{senderKey + "=" + key}, program,
		"send", "-address", address, "-connections", strconv.Itoa(connections))
	if err == nil {
		_, err = c.await(isSending)
	}
	return c, err
}

// stopSender ends a process that startSender has started, and adds its processor time to
// b.ended.
func (b *bench) stopSender(c *child) {
	seconds, _ := processor(c.pid())
	b.ended += seconds
	c.stop()
	b.children = slices.DeleteFunc(b.children, func(other *child) bool { return other == c })
}

// mostSending is the longest time for which the command send runs.
const mostSending = 5 * time.Minute

// send runs the command send: it sends checks until the process is ended, but at most for
// mostSending. It uses one thread, as the load generator does.
func send(args []string) error {
	flags := flag.NewFlagSet("send", flag.ContinueOnError)
	address := flags.String("address", "", "address of the server")
	connections := flags.Int("connections", 1, "number of connections")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	var opened atomic.Int64
	_, err := load.Run(context.Background(), load.Config{
		Request: checkRequest(*address, os.Getenv(senderKey)), Connections: *connections, Duration: mostSending,
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", *address)
			if opened.Add(1) == int64(*connections) {
				fmt.Println("sending")
			}
			return c, err
		},
	})
	return err
}

// goodput returns a function for a target: the rate of decided checks with overloadConnections,
// divided by the rate with fullConnections.
func goodput(name string) func(*results) float64 {
	return func(r *results) float64 {
		return pair(r.overload, perSecond, underLoad(name, overloadConnections), underLoad(name, fullConnections), ratio)
	}
}

// fairness returns a function for a target: the p99 latency of nine tenants beside the flood of a
// tenth tenant, divided by their p99 latency if all ten tenants send equally.
func fairness(name string) func(*results) float64 {
	return func(r *results) float64 { return pair(r.overload, p99, beside(name, true), beside(name, false), ratio) }
}

// overloadTargets contains the targets of the group overload. docs/faults.md has the same IDs.
var overloadTargets = []target{
	{"F-O1", "checks/s, exact, 1,000 connections, against 64", 0.80, true, "×", goodput(exactTCP)},
	{"F-O1", "the same, embedded", 0.80, true, "×", goodput(embedded)},
	{"F-O2", "p99 of nine tenants, exact, a tenth sends 20 times its share, against all alike", 1.2, false, "×", fairness(exactTCP)},
	{"F-O2", "the same, embedded", 1.2, false, "×", fairness(embedded)},
}

func (r *results) writeOverload(b *strings.Builder) {
	if r.overload == nil {
		return
	}
	b.WriteString("\nOne tenant. × 64 is the ratio of checks/s to that with 64 connections.\n\n")
	head(b, slices.Concat([]string{"checks/s", "× 64", latencies}, times, []string{"not allowed"})...)
	for _, name := range overloaded {
		for _, connections := range []int{fullConnections, overloadConnections} {
			all := r.overload[underLoad(name, connections)]
			against := number(pair(r.overload, perSecond, underLoad(name, connections), underLoad(name, fullConnections), ratio))
			row(b, slices.Concat([]string{underLoad(name, connections), number(all.median(perSecond)), against, all.latencies()}, all.times(),
				[]string{percent(all)})...)
		}
	}
	fmt.Fprintf(b, "\nNine of ten tenants, on %d connections each. In a flood, the tenth sends on %d.\n\n",
		equalConnections, floodFactor*equalConnections)
	head(b, "checks/s of the nine", latencies, "p99, × all alike", "not allowed")
	for _, name := range overloaded {
		for _, flood := range []bool{false, true} {
			if r.overload[beside(name, flood)] == nil {
				continue
			}
			all, against := r.overload[beside(name, flood)], math.NaN()
			if flood {
				against = fairness(name)(r)
			}
			row(b, beside(name, flood), number(all.median(perSecond)), all.latencies(), number(against), percent(all))
		}
	}
}
