package recipes

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePorts returns n different loopback ports on which no process listened. The ports are below the range from which
// Linux takes the local ports of outgoing connections. In that range, a connection of another process can take a port
// before the program that needs it listens.
func FreePorts(n int) ([]int, error) {
	const low, high = 15000, 32000
	var ports []int
	for range 200 + n {
		if len(ports) == n {
			return ports, nil
		}
		port := low + rand.IntN(high-low)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue
		}
		defer l.Close() // closed after all ports are chosen, so that no port is chosen twice
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("fewer than %d free loopback ports between %d and %d", n, low, high)
}
