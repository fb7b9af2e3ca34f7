package servertest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// A Proxy forwards connections to a server and can inject faults. It treats bytes from
// the client, followed by bytes from the server, as a request and its reply. That is
// correct for Redis and Postgres if the client waits for each reply.
type Proxy struct {
	url      *url.URL
	listener net.Listener
	running  sync.WaitGroup
	closed   chan struct{}

	mu       sync.Mutex
	target   string // host:port
	open     map[*link]struct{}
	total    int
	cut      bool
	gate     chan struct{} // not nil after Blackhole; closed by Heal
	delay    time.Duration
	slice    int           // number of bytes of a reply in one write; 0 for the whole reply
	pause    time.Duration // after each slice
	cutAfter int           // number of bytes of replies after which a connection is reset; 0 if it is never reset
	lost     []*loss
}

// A Loss selects a reply that the proxy drops, and says how the proxy drops it.
type Loss struct {
	// Request is a text that the request must contain, ignoring case. Default: every
	// request matches, including the handshake of a client.
	Request string
	// Nth is the number of the request to select among the matching requests. All connections are
	// counted together, from the call of Lose on. Default: 1.
	Nth int
	// Silent keeps the connection open without any further bytes, so that the client times
	// out. Default: the proxy resets the connection.
	Silent bool
}

type loss struct {
	Loss
	happened chan struct{}
}

// A link is a connection from a client, together with the proxy's connection to the server.
type link struct {
	client, server net.Conn

	mu       sync.Mutex
	request  []byte // bytes that the client has sent since the last bytes of the server
	answered bool   // set if the last bytes came from the server
	silent   bool
	replied  int // number of bytes of replies that were written since CutAfter was called
}

// maxRequestBytes is the maximum number of bytes at the start of a request that the proxy compares
// with a Loss. Every script call is shorter.
const maxRequestBytes = 64 << 10

// StartProxy starts a proxy on a loopback port in front of the server of a redis:// or postgres://
// URL. The proxy stops at the end of the test.
func StartProxy(t testing.TB, serverURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil || u.Port() == "" {
		t.Fatal("servertest: a proxy needs a URL with host and port")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: u.Host, listener: l, closed: make(chan struct{}), open: map[*link]struct{}{}}
	through := *u
	through.Host = l.Addr().String()
	p.url = &through
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

// URL returns the server's URL with the address of the proxy.
func (p *Proxy) URL() string { return p.url.String() }

// Lose makes the proxy forward one request and drop the reply. The server executes the request, and
// the client does not learn this. The channel happened is closed when the proxy has dropped the
// reply.
func (p *Proxy) Lose(l Loss) (happened <-chan struct{}) {
	if l.Nth == 0 {
		l.Nth = 1
	}
	planned := &loss{Loss: l, happened: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = append(p.lost, planned)
	return planned.happened
}

// Delay delays each further chunk of a reply by d.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Trickle makes the proxy write replies in pieces of slice bytes, with a pause after each piece.
func (p *Proxy) Trickle(slice int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slice, p.pause = slice, pause
}

// CutAfter resets each connection after n more bytes of replies.
func (p *Proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = n
}

// Retarget resets all connections and forwards new connections to another server, like a failover
// that moves an address.
func (p *Proxy) Retarget(t testing.TB, serverURL string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil || u.Port() == "" {
		t.Fatal("servertest: a proxy needs a URL with host and port")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = u.Host
	for l := range p.open {
		l.reset()
	}
}

// Cut resets all connections. Until [Proxy.Heal], it also resets each new connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for l := range p.open {
		l.reset()
	}
}

// Blackhole simulates a lost route. Connections stay open and new connections are accepted, but the
// proxy forwards no bytes. [Proxy.Heal] ends this and forwards the bytes that have waited.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

// Heal ends Cut, Blackhole, Delay, Trickle and CutAfter. It does not end Lose.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay, p.slice, p.pause, p.cutAfter = false, 0, 0, 0, 0
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// Connections returns the number of accepted connections, including closed ones.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

func (p *Proxy) close() {
	close(p.closed)
	_ = p.listener.Close()
	p.Cut()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{client: client}
	if !p.enter(l) {
		l.reset()
		return
	}
	defer p.leave(l)
	if !p.pass() {
		return
	}
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		l.reset() // as without the proxy
		return
	}
	if !p.joined(l, server) {
		return
	}
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, client, server, l.asked, server.Write) })
	pumps.Go(func() { p.pump(l, server, client, p.answer(l), p.reply(l)) })
	pumps.Wait()
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	if p.cut {
		return false
	}
	p.open[l] = struct{}{}
	return true
}

// joined sets the connection of the link to the server. It returns false if the link was reset in
// the meantime.
func (p *Proxy) joined(l *link, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		_ = server.Close()
		return false
	}
	l.server = server
	return true
}

func (p *Proxy) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, l)
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// pass waits while Blackhole is active. It returns false if the proxy has stopped.
func (p *Proxy) pass() bool {
	for {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-p.closed:
			return false
		}
	}
}

// reply returns a function that writes a chunk of a reply to the client. While Trickle is active,
// it writes the chunk in pieces.
func (p *Proxy) reply(l *link) func([]byte) (int, error) {
	return func(chunk []byte) (written int, err error) {
		for written < len(chunk) {
			p.mu.Lock()
			slice, pause, cutAfter := p.slice, p.pause, p.cutAfter
			p.mu.Unlock()
			if cutAfter == 0 {
				l.replied = 0
			} else {
				left := cutAfter - l.replied
				if left <= 0 {
					l.reset()
					return written, io.ErrClosedPipe
				}
				if slice == 0 || slice > left {
					slice = left
				}
			}
			if slice == 0 || slice > len(chunk)-written {
				slice = len(chunk) - written
			}
			n, err := l.client.Write(chunk[written : written+slice])
			written += n
			l.replied += n
			if err != nil {
				return written, err
			}
			if pause > 0 {
				select {
				case <-time.After(pause):
				case <-p.closed:
				}
			}
		}
		return written, nil
	}
}

// pump copies the bytes of one direction of a link until the connection ends. It calls seen for
// each chunk; seen may drop the chunk.
func (p *Proxy) pump(l *link, from, to net.Conn, seen func([]byte) bool, write func([]byte) (int, error)) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass() {
				return
			}
			if seen(buf[:n]) {
				if _, err := write(buf[:n]); err != nil {
					_ = from.Close()
					return
				}
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && !l.isSilent():
			_ = to.(*net.TCPConn).CloseWrite()
			return
		default: // one connection was reset, so reset the other connection too
			l.reset()
			return
		}
	}
}

// asked adds a chunk to the request that the next reply will answer.
func (l *link) asked(chunk []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered {
		l.request, l.answered = nil, false
	}
	l.request = append(l.request, chunk[:min(len(chunk), maxRequestBytes-len(l.request))]...)
	return !l.silent
}

// answer returns a function that handles a chunk from the server: it forwards, delays, or drops the
// chunk.
func (p *Proxy) answer(l *link) func([]byte) bool {
	return func([]byte) bool {
		l.mu.Lock()
		first, request, silent := !l.answered, l.request, l.silent
		l.answered = true
		l.mu.Unlock()
		if silent {
			return false
		}
		if first {
			if lost := p.due(request); lost != nil {
				l.lose(lost)
				return false
			}
		}
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-p.closed:
			}
		}
		return true
	}
}

// due counts the request for each Loss that matches it, and returns the Loss that applies to its
// reply now.
func (p *Proxy) due(request []byte) *loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	var due *loss
	kept := p.lost[:0]
	for _, l := range p.lost {
		if bytes.Contains(bytes.ToLower(request), bytes.ToLower([]byte(l.Request))) {
			l.Nth--
		}
		if due == nil && l.Nth <= 0 {
			due = l
			continue
		}
		kept = append(kept, l)
	}
	p.lost = kept
	return due
}

func (l *link) lose(lost *loss) {
	if lost.Silent {
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
	} else {
		l.reset()
	}
	close(lost.happened)
}

func (l *link) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

// reset resets both connections of the link, without an orderly close.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}
