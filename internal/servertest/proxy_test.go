package servertest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/servertest"
)

// A shouter answers each line in capitals and counts the lines.
type shouter struct {
	url   string
	lines atomic.Int32
}

func startShouter(t *testing.T) *shouter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &shouter{url: "tcp://" + l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					s.lines.Add(1)
					if _, err := io.WriteString(conn, strings.ToUpper(lines.Text())+"\n"); err != nil {
						return
					}
				}
			}()
		}
	}()
	return s
}

type speaker struct {
	net.Conn
	replies *bufio.Reader
}

func dial(t *testing.T, address string) *speaker {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &speaker{conn, bufio.NewReader(conn)}
}

func (s *speaker) ask(line string) (string, error) {
	if _, err := io.WriteString(s.Conn, line+"\n"); err != nil {
		return "", err
	}
	reply, err := s.replies.ReadString('\n')
	return strings.TrimSuffix(reply, "\n"), err
}

// askOnce asks on a new connection, which may not even come about.
func askOnce(address, line string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return "", err
	}
	return (&speaker{conn, bufio.NewReader(conn)}).ask(line)
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()
	server := startShouter(t)
	proxy := servertest.StartProxy(t, server.url)
	for range 2 {
		c := dial(t, proxy.URL())
		for _, word := range []string{"one", "two"} {
			if got, err := c.ask(word); err != nil || got != strings.ToUpper(word) {
				t.Errorf("asked %q: %q, %v", word, got, err)
			}
		}
	}
	if n := proxy.Connections(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
}

func TestProxyLosesTheNthMatchingReply(t *testing.T) {
	t.Parallel()
	server := startShouter(t)
	proxy := servertest.StartProxy(t, server.url)
	happened := proxy.Lose(servertest.Loss{Request: "TAKE", Nth: 2})
	c := dial(t, proxy.URL())
	for _, word := range []string{"hello", "take 1", "hello"} {
		if got, err := c.ask(word); err != nil || got != strings.ToUpper(word) {
			t.Errorf("asked %q: %q, %v", word, got, err)
		}
	}
	select {
	case <-happened:
		t.Error("a reply was lost too early")
	default:
	}
	if got, err := c.ask("take 2"); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the second take: %q, %v; want a reset", got, err)
	}
	<-happened
	if n := server.lines.Load(); n != 4 {
		t.Errorf("the server saw %d requests, want 4: the lost reply's one too", n)
	}
	if got, err := askOnce(proxy.URL(), "take 3"); err != nil || got != "TAKE 3" {
		t.Errorf("after the loss: %q, %v", got, err)
	}
}

func TestProxyLosesAReplyInSilence(t *testing.T) {
	t.Parallel()
	server := startShouter(t)
	proxy := servertest.StartProxy(t, server.url)
	happened := proxy.Lose(servertest.Loss{Silent: true})
	c := dial(t, proxy.URL())
	answered := make(chan error, 1)
	go func() {
		_, err := c.ask("take")
		answered <- err
	}()
	<-happened
	if err := c.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent loss: %v, want a deadline", err)
	}
}

func TestProxyCutsUntilHealed(t *testing.T) {
	t.Parallel()
	proxy := servertest.StartProxy(t, startShouter(t).url)
	c := dial(t, proxy.URL())
	if _, err := c.ask("one"); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if got, err := c.ask("two"); err == nil {
		t.Errorf("an open connection answered %q after the cut", got)
	}
	if got, err := askOnce(proxy.URL(), "three"); err == nil {
		t.Errorf("a new connection answered %q after the cut", got)
	}
	proxy.Heal()
	if got, err := askOnce(proxy.URL(), "four"); err != nil || got != "FOUR" {
		t.Errorf("after healing: %q, %v", got, err)
	}
}

func TestProxyHoldsEverythingInABlackHole(t *testing.T) {
	t.Parallel()
	server := startShouter(t)
	proxy := servertest.StartProxy(t, server.url)
	c := dial(t, proxy.URL())
	if _, err := c.ask("one"); err != nil {
		t.Fatal(err)
	}
	proxy.Blackhole()
	before := server.lines.Load()
	answered := make(chan error, 2)
	for _, s := range []*speaker{c, dial(t, proxy.URL())} {
		go func() {
			_, err := s.ask("two")
			answered <- err
		}()
	}
	// Nothing can arrive, so this can only fail when something leaks.
	select {
	case err := <-answered:
		t.Errorf("answered out of a black hole: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	if n := server.lines.Load(); n != before {
		t.Errorf("%d requests came through a black hole", n-before)
	}
	proxy.Heal()
	for range 2 {
		if err := <-answered; err != nil {
			t.Errorf("after healing: %v", err)
		}
	}
}

func TestProxyDelaysReplies(t *testing.T) {
	t.Parallel()
	proxy := servertest.StartProxy(t, startShouter(t).url)
	c := dial(t, proxy.URL())
	const delay = 20 * time.Millisecond
	proxy.Delay(delay)
	start := time.Now()
	if _, err := c.ask("one"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < delay {
		t.Errorf("a reply held for %s came after %s", delay, took)
	}
}

func TestProxyResetsWhenTheServerIsNotThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.StartProxy(t, "tcp://"+l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := askOnce(proxy.URL(), "one"); err == nil {
		t.Errorf("answered %q without a server", got)
	}
}

func TestProxySlicesReplies(t *testing.T) {
	t.Parallel()
	proxy := servertest.StartProxy(t, startShouter(t).url)
	c := dial(t, proxy.URL())
	proxy.Trickle(1, 2*time.Millisecond)
	start := time.Now()
	if got, err := c.ask("slices"); err != nil || got != "SLICES" {
		t.Errorf("in slices: %q, %v", got, err)
	}
	if took := time.Since(start); took < 12*time.Millisecond {
		t.Errorf("six slices with pauses of 2 ms came after %s", took)
	}
}

func TestProxyCutsAReplyInTheMiddle(t *testing.T) {
	t.Parallel()
	proxy := servertest.StartProxy(t, startShouter(t).url)
	c := dial(t, proxy.URL())
	proxy.CutAfter(9)
	if got, err := c.ask("four"); err != nil || got != "FOUR" {
		t.Errorf("before the cut: %q, %v", got, err)
	}
	if got, err := c.ask("eight..."); err == nil {
		t.Errorf("a reply that was cut: %q", got)
	}
	proxy.Heal()
	if got, err := askOnce(proxy.URL(), "twelve chars"); err != nil || got != "TWELVE CHARS" {
		t.Errorf("after healing: %q, %v", got, err)
	}
}

func TestProxyMovesToAnotherServer(t *testing.T) {
	t.Parallel()
	first, second := startShouter(t), startShouter(t)
	proxy := servertest.StartProxy(t, first.url)
	c := dial(t, proxy.URL())
	if _, err := c.ask("one"); err != nil {
		t.Fatal(err)
	}
	proxy.Retarget(t, second.url)
	if got, err := c.ask("two"); err == nil {
		t.Errorf("an open connection answered %q after the move", got)
	}
	if got, err := askOnce(proxy.URL(), "three"); err != nil || got != "THREE" || second.lines.Load() != 1 {
		t.Errorf("after the move: %q, %v; the second server got %d lines", got, err, second.lines.Load())
	}
}
