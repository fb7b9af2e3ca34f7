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

// A Proxy stands before a server and passes bytes both ways, until it is told
// to misbehave. It knows of the protocol only this: bytes from the client,
// followed by bytes from the server, are a request and its reply. That holds
// for Redis and Postgres as long as a client waits for its replies.
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
	gate     chan struct{} // not nil while in a black hole; closed by Heal
	delay    time.Duration
	slice    int           // bytes of a reply that are written at once; 0: all
	pause    time.Duration // after each slice
	cutAfter int           // bytes of replies after which a connection is reset; 0: never
	lost     []*loss
}

// Loss says which reply the proxy loses, and how.
type Loss struct {
	// Request is what the request must contain, in whatever case. Default: any request,
	// those by which a client introduces itself included.
	Request string
	// Nth counts the matching requests of all connections from now on. Default: 1.
	Nth int
	// Silent keeps the connection open and passes nothing on it ever again, so
	// that the client runs into its deadline. Default: the client sees a reset.
	Silent bool
}

type loss struct {
	Loss
	happened chan struct{}
}

// link is one client's connection and ours to the server.
type link struct {
	client, server net.Conn

	mu       sync.Mutex
	request  []byte // since the server last spoke
	answered bool   // the server has spoken since the client did
	silent   bool
	replied  int // bytes of replies that were written while replies are cut
}

// maxRequestBytes of a request are searched; more than any script call has.
const maxRequestBytes = 64 << 10

// StartProxy listens on a loopback port before the server of a redis:// or
// postgres:// URL, and ends with the test.
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

// URL is the server's URL by way of the proxy.
func (p *Proxy) URL() string { return p.url.String() }

// Lose has the proxy pass one request on, wait for the server's reply, and lose
// that: the server has done it and the client cannot know. The channel is
// closed when it has happened.
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

// Delay holds each chunk of a reply for d from now on.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Trickle writes replies in slices of so many bytes, with a pause after each,
// from now on.
func (p *Proxy) Trickle(slice int, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slice, p.pause = slice, pause
}

// CutAfter resets each connection once it has written n more bytes of replies.
func (p *Proxy) CutAfter(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter = n
}

// Retarget resets all connections and passes new ones to another server, as a
// name or an address does that moves in a failover.
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

// Cut resets all connections, and each new one as it comes, until [Proxy.Heal].
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for l := range p.open {
		l.reset()
	}
}

// Blackhole lets connections be and be made, and passes nothing either way.
// After [Proxy.Heal] what was held goes its way, as after a lost route.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

// Heal ends Cut, Blackhole, Delay, Trickle and CutAfter. Planned losses stay.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.delay, p.slice, p.pause, p.cutAfter = false, 0, 0, 0, 0
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// Connections is how many connections were taken so far, ended ones included.
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
		l.reset() // what the client would see without us
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

// joined gives the link its server side, unless the link was cut meanwhile.
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

// pass waits while there is a black hole; false means that the proxy ended.
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

// reply writes a chunk of a reply to the client, in slices if told to.
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

// pump copies one direction until it ends; seen may hold a chunk back.
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
		default: // one side was reset: so is the other
			l.reset()
			return
		}
	}
}

// asked remembers the request that the next reply will answer.
func (l *link) asked(chunk []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.answered {
		l.request, l.answered = nil, false
	}
	l.request = append(l.request, chunk[:min(len(chunk), maxRequestBytes-len(l.request))]...)
	return !l.silent
}

// answer decides on each chunk from the server: passed on, late, or lost.
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

// due counts request against each planned loss, and returns the one whose turn it is.
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

// reset ends both connections; the client sees a reset, not an orderly end.
func (l *link) reset() {
	if tcp, ok := l.client.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}
