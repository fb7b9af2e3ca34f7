package connlimit

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limits are the bounds of a Listener.
type Limits struct {
	// Total is the number of connections at once, with the reserve.
	Total int
	// Reserve is the part of Total that is only used while all other connections
	// are in use.
	Reserve int
	// PerAddress is the number of connections of one IPv4 address, or of the first
	// 64 bits of one IPv6 address; 0: no bound.
	PerAddress int
}

// Status is the state of a Listener.
type Status struct {
	Open    int   // connections now
	Limit   int   // of Open
	Evicted int64 // idle connections that were closed to accept new ones
	Refused int64 // new connections that were closed, or answered 503
}

// A Listener accepts a bounded number of connections.
type Listener struct {
	net.Listener
	limits   Limits
	pressure func(Status)

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	of       map[netip.Addr]int // connections of each address
	reserved int                // connections of the reserve
	evicted  int64
	refused  int64
	reported time.Time // when pressure was called last
}

// reportEvery is how often a Listener reports pressure at most.
const reportEvery = time.Minute

// Wrap bounds the connections of l. It calls pressure, at most once a minute, after
// it closed or refused a connection; nil: never.
func Wrap(l net.Listener, limits Limits, pressure func(Status)) *Listener {
	return &Listener{Listener: l, limits: limits, pressure: pressure, conns: map[*Conn]struct{}{}, of: map[netip.Addr]int{}}
}

// Status returns the state of the Listener.
func (l *Listener) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status()
}

func (l *Listener) status() Status {
	return Status{Open: len(l.conns), Limit: l.limits.Total, Evicted: l.evicted, Refused: l.refused}
}

// Accept waits for a connection within the bounds.
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

// admit counts a connection in. It returns nil if there is no place for it.
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

// place finds a place for a connection. It removes the connections that are to be
// closed for it.
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

// evictPart is the part of the connections that one search for idle ones closes, so
// that a search is rare in a flood.
const evictPart = 64

// evict removes idle connections of the n that match: those that were never used,
// then those that are idle for the longest time.
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
		if c.Conn.since.CompareAndSwap(c.since, evicted) { // else a request has arrived
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

// addressOf returns an IPv4 address, the first 64 bits of an IPv6 address, and the
// zero Addr for a connection that is not over IP.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		prefix, _ := ip.Prefix(64) // 64 bits are in range
		return prefix.Addr()
	}
	return ip
}
