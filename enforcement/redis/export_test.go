package redis

import "time"

// SetClock makes l believe that its server's clock shows t now.
func SetClock(l *Limiter, t time.Time) {
	l.clocks.one.Store(&reading{sent: time.Now(), server: t.UnixMicro()})
}
