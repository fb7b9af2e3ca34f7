package resp

import (
	"bufio"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that sends a command byte by byte does not keep its connection: further bytes do not extend
// the time for the command. An idle connection stays open, and so does one that completes
// commands slowly.
func TestCommandsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, served := net.Pipe()
		s := New(Config{Logger: slog.New(slog.DiscardHandler)})
		c := &conn{Conn: served, server: s}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer served.Close()
			c.serve()
		}()
		send := func(text string) error {
			_, err := client.Write([]byte(text))
			return err
		}
		reply := func() {
			t.Helper()
			if _, err := client.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
		}
		for range 30 { // each command takes 6 s
			for _, part := range []string{"PI", "NG\r", "\n"} {
				if err := send(part); err != nil {
					t.Fatalf("a slow client that completes commands: %v", err)
				}
				time.Sleep(3 * time.Second)
			}
			reply()
			time.Sleep(time.Hour)
		}
		last := make(chan string)
		go func() {
			text, _ := io.ReadAll(client)
			last <- string(text)
		}()
		bytes := 0
		for ; bytes < 100 && send("x") == nil; bytes++ {
			time.Sleep(time.Second)
		}
		if most := int(firstTimeout / time.Second); bytes > most+1 {
			t.Errorf("%d bytes of a command were read, one each second, want at most %d", bytes, most)
		}
		<-ended
		if text := <-last; text != "-ERR protocol error: a command must be complete 10 seconds after its first byte\r\n" {
			t.Errorf("the last reply is %q", text)
		}
		_ = client.Close()
	})
}

// A client that has not sent a key can fill only the first buffer of its connection.
func TestLongCommandsNeedAuth(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "hg_tn_x"} {
		client, served := net.Pipe()
		c := &conn{Conn: served, server: New(Config{Logger: slog.New(slog.DiscardHandler)}), token: token}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			defer served.Close()
			c.serve()
		}()
		_ = client.SetDeadline(time.Now().Add(time.Minute))
		wrote := make(chan int)
		go func() {
			n, _ := client.Write([]byte("*2\r\n$4\r\nPING\r\n$30000\r\n" + strings.Repeat("x", 30_000) + "\r\n"))
			wrote <- n
		}()
		reply, err := bufio.NewReader(client).ReadString('\n')
		if long := strings.HasPrefix(reply, "$30000"); err != nil || long != (token != "") {
			t.Errorf("with the key %q: %.80q, %v", token, reply, err)
		}
		_ = client.Close()
		if n := <-wrote; token == "" && n > minBuffer {
			t.Errorf("%d bytes were read", n)
		}
		<-ended
		if size := len(c.buf); token == "" && size > minBuffer {
			t.Errorf("a buffer of %d bytes", size)
		}
	}
}
