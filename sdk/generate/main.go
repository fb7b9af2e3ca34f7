// Command generate writes the types and management calls of the SDKs from openapi.yaml:
//
//	go -C sdk/generate run . ../../openapi.yaml ..
//
// It writes one small file for each language, without dependencies. Enums and unions of
// answers accept values that a later version adds. Check calls are not generated.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate OPENAPI.YAML SDK-FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(specification, folder string) error {
	s, err := load(specification)
	if err != nil {
		return err
	}
	goCode, err := goFile(s)
	if err != nil {
		return err
	}
	for name, text := range map[string]string{
		"go/manage/manage.gen.go":        goCode,
		"typescript/src/manage.gen.ts":   tsFile(s),
		"python/headgate/_manage_gen.py": pyFile(s),
	} {
		if err := os.WriteFile(filepath.Join(folder, filepath.FromSlash(name)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
