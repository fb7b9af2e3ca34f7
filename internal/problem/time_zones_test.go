package problem

import (
	"archive/zip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestValidTimeZone(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"UTC": true, "Europe/Berlin": true, "America/Argentina/ComodRivadavia": true, "Etc/GMT+12": true, "EST5EDT": true,
		"": false, "Local": false, "Mars/Olympus": false, "../etc/passwd": false, "Europe": false, "Europe/": false,
		// files of the host's database, which not every host has
		"localtime": false, "posixrules": false, "posix/Europe/Berlin": false, "right/Europe/Berlin": false, "right/UTC": false,
		// names that a host finds if its file system ignores case
		"utc": false, "europe/berlin": false,
		"UTC\n": false, "UTC\nCET": false,
	} {
		if got := ValidTimeZone(name); got != want {
			t.Errorf("ValidTimeZone(%q) = %t, want %t", name, got, want)
		}
		var f Fields
		if f.TimeZone("/time_zone", name); (f.Err() == nil) != want {
			t.Errorf("TimeZone(%q): %v", name, f.Err())
		}
	}
}

// time_zones.txt has the names of the database that package time/tzdata embeds. If a new version of Go
// has other names, write the names that this test prints to the file.
func TestTimeZonesAreThoseOfGo(t *testing.T) {
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	database, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	var names []string
	for _, file := range database.File {
		if !strings.HasSuffix(file.Name, "/") {
			names = append(names, file.Name)
		}
	}
	slices.Sort(names)
	if want := strings.Join(names, "\n") + "\n"; timeZones != want {
		t.Errorf("time_zones.txt is not the list of Go's database:\n%s", want)
	}
}
