package problem

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed time_zones.txt
var timeZones string

// knownTimeZones returns the names that ValidTimeZone accepts.
var knownTimeZones = sync.OnceValue(func() map[string]bool {
	known := map[string]bool{}
	for name := range strings.FieldsSeq(timeZones) {
		known[name] = true
	}
	return known
})

// TimeZoneForm says what a time zone must be.
const TimeZoneForm = "must be the name of an IANA time zone, like Europe/Berlin or UTC"

// ValidTimeZone reports whether name is in the time zone database that Go embeds in the binary. Each
// node can load such a zone. time.LoadLocation also accepts Local, and names of the files of the host,
// such as localtime and posix/Europe/Berlin. These differ between nodes, or are missing on some.
func ValidTimeZone(name string) bool { return knownTimeZones()[name] }

// TimeZone adds a fault at pointer if name is not valid as a time zone.
func (f *Fields) TimeZone(pointer, name string) {
	if !ValidTimeZone(name) {
		f.Add(pointer, TimeZoneForm)
	}
}
