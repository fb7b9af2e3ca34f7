package nodes

import (
	"encoding/json"
	"time"
)

// During an upgrade, nodes of two releases read each other's reports. Therefore a member of the
// JSON form must never get another meaning or another unit. A changed value needs a new name.
// Durations are in microseconds.

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

type latencyJSON struct {
	P50 int64 `json:"p50_us"`
	P99 int64 `json:"p99_us"`
	*plainLatency
}

type plainLatency Latency

// MarshalJSON implements json.Marshaler.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyJSON{l.P50.Microseconds(), l.P99.Microseconds(), (*plainLatency)(&l)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *Latency) UnmarshalJSON(text []byte) error {
	in := latencyJSON{plainLatency: (*plainLatency)(l)}
	err := json.Unmarshal(text, &in)
	l.P50, l.P99 = microseconds(in.P50), microseconds(in.P99)
	return err
}

type databaseJSON struct {
	Report int64 `json:"report_us,omitempty"`
	*database
}

type database Database

// MarshalJSON implements json.Marshaler.
func (d Database) MarshalJSON() ([]byte, error) {
	return json.Marshal(databaseJSON{d.Report.Microseconds(), (*database)(&d)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Database) UnmarshalJSON(text []byte) error {
	in := databaseJSON{database: (*database)(d)}
	err := json.Unmarshal(text, &in)
	d.Report = microseconds(in.Report)
	return err
}

type countsJSON struct {
	Interval int64 `json:"interval_us,omitempty"`
	Waiting  int64 `json:"waiting_us,omitempty"`
	*counts
}

type counts Counts

// MarshalJSON implements json.Marshaler.
func (c Counts) MarshalJSON() ([]byte, error) {
	return json.Marshal(countsJSON{c.Interval.Microseconds(), c.Waiting.Microseconds(), (*counts)(&c)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Counts) UnmarshalJSON(text []byte) error {
	in := countsJSON{counts: (*counts)(c)}
	err := json.Unmarshal(text, &in)
	c.Interval, c.Waiting = microseconds(in.Interval), microseconds(in.Waiting)
	return err
}
