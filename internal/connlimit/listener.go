package connlimit

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits contains the bounds of a Listener.
type Limits struct {
	// Total is the maximum number of open connections, including those of the reserve.
	Total int
	// Reserve is a part of Total. The Listener uses it only while all other connections are in
	// use.
	Reserve int
	// PerAddress is the maximum number of open connections from one IPv4 address, or from one
	// /64 network of IPv6 addresses. 0 means that there is no maximum.
	PerAddress int
}

// Status contains the numbers of connections of a Listener.
type Status struct {
	Open    int   // number of connections that are open now
	Limit   int   // Limits.Total
	Evicted int64 // number of idle connections that were closed to make room for new ones, since the start
	Refused int64 // number of new connections that were closed at once or answered with 503, since the start
}

// A Listener accepts connections within its Limits.
type Listener struct {
	net.Listener
	limits   Limits
	pressure func(Status)
	stall    time.Duration // stallTimeout, or a shorter time in tests

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	of       map[netip.Addr]int // number of connections by client address
	reserved int                // number of open connections of the reserve
	evicted  int64
	refused  int64
	reported time.Time // time of the last call of pressure
}

// reportEvery is the minimum time between two calls of the function pressure.
const reportEvery = time.Minute

// Wrap returns a Listener that accepts the connections of l within limits. When a limit makes the
// Listener close or reject a connection, it calls the function pressure, but at most once a minute.
// pressure may be nil.
func Wrap(l net.Listener, limits Limits, pressure func(Status)) *Listener {
	return &Listener{
		Listener: l, limits: limits, pressure: pressure, stall: stallTimeout,
		conns: map[*Conn]struct{}{}, of: map[netip.Addr]int{},
	}
}

// Status returns the current numbers of the Listener.
func (l *Listener) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status()
}

func (l *Listener) status() Status {
	return Status{Open: len(l.conns), Limit: l.limits.Total, Evicted: l.evicted, Refused: l.refused}
}

// Accept waits for a connection that the limits allow, and returns it. It closes new connections
// that the limits do not allow.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

// admit registers a new connection and returns it as a Conn. If the bounds do not allow the
// connection, admit returns nil, and the caller must close it.
func (l *Listener) admit(inner net.Conn) *Conn {
	c := &Conn{Conn: inner, listener: l, address: addressOf(inner.RemoteAddr())}
	c.since.Store(time.Now().UnixNano())
	l.mu.Lock()
	evicted, refused := l.evicted, l.refused
	victims, ok := l.place(c)
	if ok {
		l.conns[c] = struct{}{}
		l.of[c.address]++
		if c.reserved {
			l.reserved++
		}
	} else {
		l.refused++
	}
	status, report := l.status(), false
	if l.pressure != nil && (evicted != l.evicted || refused != l.refused) && time.Since(l.reported) >= reportEvery {
		l.reported, report = time.Now(), true
	}
	l.mu.Unlock()
	for _, victim := range victims {
		_ = victim.Conn.Close()
	}
	if report {
		l.pressure(status)
	}
	if !ok {
		return nil
	}
	return c
}

// place reports whether the bounds allow the new connection c. If a bound is reached, place makes
// room: it removes idle connections from the registered connections and returns them as victims.
// The caller must close the victims.
func (l *Listener) place(c *Conn) (victims []*Conn, ok bool) {
	if l.limits.PerAddress > 0 && l.of[c.address] >= l.limits.PerAddress {
		victims = l.evict(l.of[c.address], func(other *Conn) bool { return other.address == c.address })
		if len(victims) == 0 {
			return nil, false
		}
	}
	ordinary := len(l.conns) - l.reserved
	if ordinary < l.limits.Total-l.limits.Reserve {
		return victims, true
	}
	more := l.evict(ordinary, func(other *Conn) bool { return !other.reserved })
	if len(more) > 0 {
		return append(victims, more...), true
	}
	c.reserved = true
	if l.reserved < l.limits.Reserve {
		return victims, true
	}
	more = l.evict(l.reserved, func(other *Conn) bool { return other.reserved })
	return append(victims, more...), len(more) > 0
}

// evictPart determines how many idle connections one call of evict removes: at most n/evictPart +
// 1, where n is the number of candidates. evict removes several at once, so that most new
// connections need no further search.
const evictPart = 64

// evict removes some of the idle connections for which match returns true from the registered
// connections, and returns them. n is the number of registered connections for which match returns
// true. evict first removes connections that never had a request, and then those that have been
// idle for the longest time.
func (l *Listener) evict(n int, match func(*Conn) bool) []*Conn {
	type candidate struct {
		*Conn
		used  bool
		since int64
	}
	var idle []candidate
	for c := range l.conns {
		if since := c.since.Load(); since > 0 && match(c) {
			idle = append(idle, candidate{c, c.used.Load(), since})
		}
	}
	slices.SortFunc(idle, func(a, b candidate) int {
		if a.used != b.used {
			if b.used {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.since, b.since)
	})
	var victims []*Conn
	for _, c := range idle {
		if len(victims) > n/evictPart {
			break
		}
		if c.Conn.since.CompareAndSwap(c.since, evicted) { // false if a request has arrived since the search
			l.remove(c.Conn)
			victims = append(victims, c.Conn)
		}
	}
	l.evicted += int64(len(victims))
	return victims
}

func (l *Listener) remove(c *Conn) {
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if c.reserved {
		l.reserved--
	}
	if l.of[c.address]--; l.of[c.address] == 0 {
		delete(l.of, c.address)
	}
}

// addressOf returns the address by which Limits.PerAddress counts a connection: the IPv4
// address, or the /64 network of the IPv6 address. If a is not an IP address, it returns the
// zero Addr.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64) // cannot fail, because IPv6 addresses have 128 bits
		return prefix.Addr()
	}
	return ip
}
