package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
)

// notice has the form of NOTICE at the root.
const notice = `Headgate is licensed under …

` + line + `

  github.com/CycloneDX/cyclonedx-go v0.12.0

                                 Apache License

` + line + `

  example.com/a v1.0.0
  example.com/b v1.0.0

Permission is hereby granted, free of charge, to any
`

const line = "--------------------------------------------------------------------------------"

// bill returns the bill of materials of the test program.
func bill(t *testing.T, text string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "NOTICE")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = run([]string{program, "1.2.3", file}, &out)
	return out.String(), err
}

func TestBillListsModulesWithLicenses(t *testing.T) {
	t.Parallel()
	text, err := bill(t, notice)
	if err != nil {
		t.Fatal(err)
	}
	var got cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(strings.NewReader(text), cyclonedx.BOMFileFormatJSON).Decode(&got); err != nil {
		t.Fatal(err)
	}
	main := got.Metadata.Component
	if main.Version != "1.2.3" || main.PackageURL != "pkg:golang/github.com/headgate/headgate/deploy/sbom@1.2.3" || len((*main.Hashes)[0].Value) != 64 {
		t.Errorf("the program is %+v", main)
	}
	found := map[string]string{}
	for _, c := range *got.Components {
		found[c.PackageURL] = (*c.Licenses)[0].License.ID
	}
	if got := found["pkg:golang/github.com/CycloneDX/cyclonedx-go@v0.12.0"]; got != "Apache-2.0" {
		t.Errorf("cyclonedx-go has the license %q: %v", got, found)
	}
	if len(found) < 2 || len(found) != len(*(*got.Dependencies)[0].Dependencies) {
		t.Errorf("%d components", len(found))
	}
	if again, _ := bill(t, notice); again != text {
		t.Error("the second bill differs")
	}
}

func TestModuleWithoutLicenseIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := bill(t, line+"\n"); err == nil || !strings.Contains(err.Error(), "NOTICE has no license of github.com/CycloneDX/cyclonedx-go") {
		t.Errorf("%v", err)
	}
}

// Each module of the product has a license that the bill can name.
func TestEveryModuleOfNoticeHasALicense(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	found := licenses(string(text))
	listed := 0
	for section := range strings.SplitSeq(string(text), line) {
		for entry := range strings.Lines(section) {
			if m := module.FindStringSubmatch(strings.TrimRight(entry, "\n")); m != nil {
				listed++
				if len(found[m[1]]) == 0 {
					t.Errorf("%s has no license that the bill can name", m[1])
				}
			}
		}
	}
	if listed < 30 {
		t.Errorf("NOTICE lists %d modules", listed)
	}
}
