package metrics

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate/enforcement"
	"github.com/headgate/headgate/internal/logging"
)

var update = flag.Bool("update", false, "write testdata/series.txt again")

// runtimeSeries are those of the Go runtime and the process that the dashboard
// shows; the others change with every release of Go.
var runtimeSeries = []string{
	"go_gc_duration_seconds", "go_goroutines", "go_memstats_heap_inuse_bytes",
	"process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds",
}

// closedLabels are those whose values are words of ours, all of them known.
var closedLabels = []string{"outcome", "reason", "verdict", "result", "kind"}

const seriesHead = `# What /metrics shows: name, type, labels; with their values where these are
# fixed. Written by go test ./metrics -run TestSeries -update.
# The dashboard and the alerts in deploy/grafana are held against this list.
`

// TestSeries holds the list that dashboards and alerts are written by against a
// scrape.
func TestSeries(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(seriesHead)
	families := scrape(t, everySeries())
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if f := families[name]; strings.HasPrefix(name, "headgate_") || slices.Contains(runtimeSeries, name) {
			line := fmt.Sprintf("%s %s %s", name, strings.ToLower(f.GetType().String()), strings.Join(labelsOf(f), ","))
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	if runtime.GOOS != "linux" {
		t.Skip("the list of process series is that of Linux")
	}
	const golden = "testdata/series.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("/metrics shows\n%s\nand %s says\n%s\nThe dashboard and the alerts may need the same change; then renew the list with -update.", b.String(), golden, want)
	}
}

// everySeries makes a recorder whose scrape has a series of every family.
func everySeries() *Recorder {
	return NewRecorder(Config{
		Snapshot: func() SnapshotState { return SnapshotState{} }, Redis: func() RedisState { return RedisState{Refusing: Refusing{Since: time.Now(), Code: "OOM"}} },
		Database: func() Refusing { return Refusing{Since: time.Now(), Code: "full"} },
		Flush:    func() FlushState { return FlushState{} }, Tenants: []string{"acme"},
		Admission: func() AdmissionState { return AdmissionState{} }, Connections: func() ConnectionState { return ConnectionState{} },
		Reservations:      func() enforcement.ReservationCounts { return enforcement.ReservationCounts{} },
		ConcurrencyLeases: func() enforcement.LeaseCounts { return enforcement.LeaseCounts{} },
		Durable:           func() DurableState { return DurableState{} }, Leases: func() LeaseState { return LeaseState{} },
		OutageJournal: func() OutageJournalState { return OutageJournalState{} },
		AuditLines:    func() int64 { return 0 }, DeniedRequests: func() int64 { return 0 },
		Log: func() logging.Status { return logging.Status{} },
	})
}

// labelsOf are the labels that a family's series have: name, or
// name=value|value.
func labelsOf(f *dto.MetricFamily) []string {
	values := map[string]map[string]bool{}
	for _, m := range f.Metric {
		for _, l := range m.Label {
			if values[l.GetName()] == nil {
				values[l.GetName()] = map[string]bool{}
			}
			values[l.GetName()][l.GetValue()] = true
		}
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(closedLabels, name) {
			name += "=" + strings.Join(slices.Sorted(maps.Keys(values[name])), "|")
		}
		found = append(found, name)
	}
	return found
}
