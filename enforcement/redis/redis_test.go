package redis

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

func TestURL(t *testing.T) {
	t.Parallel()
	type want struct {
		Addrs                          []string
		User, Password, Master         string
		SentinelUser, SentinelPassword string
		DB                             int
		Cluster, TLS                   bool
		Server                         string
	}
	for url, w := range map[string]want{
		"redis://localhost":                  {Addrs: []string{"localhost:6379"}},
		"redis://h:1/3":                      {Addrs: []string{"h:1"}, DB: 3},
		"redis://:p%40ss@h":                  {Addrs: []string{"h:6379"}, Password: "p@ss"},
		"redis://u:p@h:7/0":                  {Addrs: []string{"h:7"}, User: "u", Password: "p"},
		"redis://[::1]:7":                    {Addrs: []string{"[::1]:7"}},
		"redis://[::1]":                      {Addrs: []string{"[::1]:6379"}},
		"rediss://u:p@h.example":             {Addrs: []string{"h.example:6379"}, User: "u", Password: "p", TLS: true, Server: "h.example"},
		"redis://a:1,b:2":                    {Addrs: []string{"a:1", "b:2"}, Cluster: true},
		"redis://u:p@a:1,b:2,c?cluster=true": {Addrs: []string{"a:1", "b:2", "c:6379"}, User: "u", Password: "p", Cluster: true},
		"redis://a?cluster=true":             {Addrs: []string{"a:6379"}, Cluster: true},
		"redis://a:1,b:2/2?master_name=m":    {Addrs: []string{"a:1", "b:2"}, Master: "m", DB: 2},
		"redis://a?master_name=m&sentinel_username=x&sentinel_password=y": {Addrs: []string{"a:6379"}, Master: "m", SentinelUser: "x", SentinelPassword: "y"},
		"unix:///run/redis.sock":          {Addrs: []string{"/run/redis.sock"}},
		"unix://u:p@/run/redis.sock?db=2": {Addrs: []string{"/run/redis.sock"}, User: "u", Password: "p", DB: 2},
	} {
		o, err := parseURL(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		got := want{
			Addrs: o.Addrs, User: o.Username, Password: o.Password, Master: o.MasterName, SentinelUser: o.SentinelUsername,
			SentinelPassword: o.SentinelPassword, DB: o.DB, Cluster: o.IsClusterMode, TLS: o.TLSConfig != nil,
		}
		if o.TLSConfig != nil {
			got.Server = o.TLSConfig.ServerName
		}
		if d := cmp.Diff(w, got); d != "" {
			t.Errorf("%s: %s", url, d)
		}
	}
}

func TestWrongURLIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "localhost:6379", "http://u:secret@h", "redis://u:secret@", "redis://u:secret@h:0", "redis://u:secret@h:port",
		"redis://u:secret@a,,b", "redis://u:secret@h/x", "redis://u:secret@h/-1", "redis://u:secret@h?cluster=maybe",
		"redis://u:secret@h?nonsense=1", "redis://u:secret@h/1?cluster=true", "redis://u:secret@h?cluster=true&master_name=m",
		"redis://u:secret%zz@h", "unix://u:secret@host/run/x", "unix://",
	} {
		_, err := New(t.Context(), Config{URL: url})
		if err == nil {
			t.Errorf("%s was taken", url)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error repeats the password: %v", err)
		}
	}
	for _, c := range []Config{{URL: "redis://h", Prefix: "a{b"}, {URL: "redis://h", Timeout: -1}} {
		if _, err := New(t.Context(), c); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// A reply is an error that Redis sends.
type redisReply string

func (r redisReply) Error() string { return string(r) }
func (redisReply) RedisError()     {}

var _ redis.Error = redisReply("")

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		sent bool
		want enforcement.Verdict
	}{
		{redisReply("READONLY You can't write against a read only replica. script: 2b, on @user_script:1."), true, enforcement.Failed},
		{redisReply("LOADING Redis is loading the dataset in memory"), true, enforcement.Failed},
		{redisReply("OOM command not allowed when used memory > 'maxmemory'."), true, enforcement.Failed},
		{redisReply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), true, enforcement.Failed},
		{redisReply("MISCONF Redis is configured to save RDB snapshots"), true, enforcement.Failed},
		{redisReply("BUSY Redis is busy running a script."), true, enforcement.Failed},
		{redisReply("NOREPLICAS Not enough good replicas to write."), true, enforcement.Failed},
		{redisReply("NOAUTH Authentication required."), true, enforcement.Failed},
		{redisReply("NOPERM this user has no permissions to run the 'evalsha' command"), true, enforcement.Failed},
		{redisReply("CLUSTERDOWN The cluster is down"), true, enforcement.Failed},
		{redisReply("TRYAGAIN Multiple keys request during rehashing of slot"), true, enforcement.Failed},
		{redisReply("MOVED 3999 127.0.0.1:6381"), true, enforcement.Failed},
		{redisReply("ASK 3999 127.0.0.1:6381"), true, enforcement.Failed},
		{redisReply("ERR max number of clients reached"), true, enforcement.Failed},
		{redisReply("ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM command not allowed"), true, enforcement.Failed},
		{redisReply("@user_script: 37: -READONLY You can't write against a read only replica."), true, enforcement.Failed},
		{redisReply("ERR Error running script (call to f_1): @user_script:9: attempt to index a nil value"), true, enforcement.Unknown},
		{redisReply("ERR user_script:9: attempt to index a nil value"), true, enforcement.Unknown},
		{redisReply("ERR something new"), true, enforcement.Unknown},
		{redisReply("ERR something new"), false, enforcement.Failed},
		{io.EOF, true, enforcement.Unknown},
		{io.EOF, false, enforcement.Failed},
		{context.DeadlineExceeded, true, enforcement.Unknown},
		{context.DeadlineExceeded, false, enforcement.Failed},
		{errTwice, true, enforcement.Unknown},
	} {
		verdict, err := classify(c.err, c.sent)
		if verdict != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q, sent %t: %s, %v; want %s", c.err, c.sent, verdict, err, c.want)
		}
		if reached := !errors.Is(err, enforcement.ErrNotReached); !c.sent && !isReply(c.err) && reached {
			t.Errorf("%q, not sent: not ErrNotReached", c.err)
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"5.0.14": true, "6.0.16": true, "6.2.0": false, "6.2.14": false, "7.0.15": false, "8.0.1": false, "10.1": false,
		"255.255.255": false, "6": false, "unstable": false,
	} {
		if older(version, minVersion) != want {
			t.Errorf("%s older than %s: %t", version, minVersion, !want)
		}
	}
	if v := infoField("# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n", "redis_version"); v != "7.0.15" {
		t.Errorf("version %q", v)
	}
}

func TestArgumentIsWrittenOnce(t *testing.T) {
	t.Parallel()
	a := argument{bytes: []byte("x")}
	if b, err := a.MarshalBinary(); string(b) != "x" || err != nil || !a.sent {
		t.Errorf("first: %q, %v", b, err)
	}
	if _, err := a.MarshalBinary(); !errors.Is(err, errTwice) {
		t.Errorf("second: %v", err)
	}
}

// No reply of a server makes the parser panic.
func FuzzReply(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0})
	f.Add(append(append([]byte{1, 1, 2, 3, 4, 5, 6, 7, 0, 1, 1}, make([]byte, 27)...), append([]byte{2}, make([]byte, 42)...)...))
	f.Fuzz(func(_ *testing.T, b []byte) {
		c := newCall()
		defer c.free()
		window := enforcement.Limit{Algorithm: enforcement.FixedWindow, Quota: 5, Window: 1e9}.Compile(1)
		entries := enforcement.Limit{Algorithm: enforcement.SlidingWindowLog, Quota: 5, Window: 1e9}.Compile(1)
		c.add(&enforcement.Request{Home: "07", Charges: []enforcement.Charge{
			{Key: enforcement.Key{Cell: 1}, Meter: window, Rev: 1, Cost: 1}, {Key: enforcement.Key{Cell: 2}, Meter: entries, Rev: 1, Cost: 1},
		}}, new(enforcement.Outcome))
		_, _ = c.readReply(b)
	})
}
