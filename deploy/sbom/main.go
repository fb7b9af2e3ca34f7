// Command sbom prints the software bill of materials of a Go program, as CycloneDX in JSON: its
// modules and their licenses. Equal programs have equal bills, so it has no time and no serial number.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 3 {
		return errors.New("usage: sbom PROGRAM VERSION NOTICE")
	}
	notice, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	bill, err := billOf(args[0], args[1], licenses(string(notice)))
	if err != nil {
		return err
	}
	return cyclonedx.NewBOMEncoder(out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bill)
}

// billOf returns the bill of the program in a file. Each of its modules must have licenses.
func billOf(file, version string, licenses map[string][]string) (*cyclonedx.BOM, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(program)
	main := component(info.Main.Path, version, []string{"Apache-2.0"})
	main.Type = cyclonedx.ComponentTypeApplication
	main.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}}
	components := []cyclonedx.Component{component("std", strings.TrimPrefix(info.GoVersion, "go"), []string{"BSD-3-Clause"})}
	uses := []string{components[0].BOMRef}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if len(licenses[m.Path]) == 0 {
			return nil, fmt.Errorf("NOTICE has no license of %s", m.Path)
		}
		c := component(m.Path, m.Version, licenses[m.Path])
		components, uses = append(components, c), append(uses, c.BOMRef)
	}
	bill := cyclonedx.NewBOM()
	bill.Metadata = &cyclonedx.Metadata{Component: &main}
	bill.Components = &components
	bill.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &uses}}
	return bill, nil
}

func component(path, version string, licenses []string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	choices := make(cyclonedx.Licenses, 0, len(licenses))
	for _, id := range licenses {
		choices = append(choices, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return cyclonedx.Component{
		BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl, Licenses: &choices,
	}
}

// kinds are the licenses by a phrase that only their texts have. The first one that matches counts.
var kinds = []struct{ phrase, id string }{
	{"Apache License", "Apache-2.0"},
	{"Mozilla Public License", "MPL-2.0"},
	{"CC0 1.0 Universal", "CC0-1.0"},
	{"Permission is hereby granted, free of charge", "MIT"},
	{"Permission to use, copy, modify, and", "ISC"},
	{"Neither the name", "BSD-3-Clause"},
	{"Redistribution and use in source and binary forms", "BSD-2-Clause"},
}

var (
	rule   = regexp.MustCompile(`(?m)^-{80}$`)
	module = regexp.MustCompile(`^  (\S+) v\S+$`)
)

// licenses returns the licenses of each module of NOTICE. A section of NOTICE lists modules, and
// then has the text that they share.
func licenses(notice string) map[string][]string {
	found := map[string][]string{}
	for _, section := range rule.Split(notice, -1) {
		text := strings.Join(strings.Fields(section), " ")
		id := ""
		for _, k := range kinds {
			if id == "" && strings.Contains(text, k.phrase) {
				id = k.id
			}
		}
		for line := range strings.Lines(section) {
			if m := module.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && id != "" {
				found[m[1]] = append(found[m[1]], id)
			}
		}
	}
	return found
}
