package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/exceptions"
	"github.com/headgate/headgate/plans"
	"github.com/headgate/headgate/tenants"
)

// A Saved is a copy of all rows of a Source that is written to a file. A node starts from the file
// if its database is unavailable.
type Saved struct {
	// At is the time at which the rows were read from the database.
	At time.Time
	// Database identifies the database from which the rows were read. A node does not use a
	// file with rows of another database.
	Database string
	Changes  Changes
}

// fileForm is the version of the file format. ReadFile rejects files of other versions.
const fileForm = 1

// fileHead is the format of the first line of the file. The first value is fileForm, the second one
// is the checksum of the rest of the file.
const fileHead = "headgate snapshot %d %s\n"

// A savedFile is the form in which a Saved is encoded. The documents of plans are JSON texts in
// this form.
type savedFile struct {
	At            time.Time
	Database      string
	Revision      int64
	Plans         []savedPlan
	Tenants       []tenants.Tenant
	Keys          []tenants.Key
	Overrides     []exceptions.Override
	Entries       []exceptions.Entry
	Blocks        []exceptions.Block
	Grants        []exceptions.Grant
	PolicyChanges []exceptions.Change
}

// A savedPlan is the form in which a PublishedPlan is encoded.
type savedPlan struct {
	ID, Slug string
	Version  int
	Revision int64
	Document []byte
	Broken   string
	Limits   []plans.Published
}

// WriteFile writes a Saved to a file that only its owner can read. It replaces the file atomically, so that a reader
// finds either the old or the new content.
func WriteFile(path string, s Saved) (err error) {
	c := s.Changes
	out := savedFile{
		At: s.At, Database: s.Database, Revision: c.Revision, Tenants: c.Tenants, Keys: c.Keys,
		Overrides: c.Overrides, Entries: c.Entries, Blocks: c.Blocks, Grants: c.Grants, PolicyChanges: c.PolicyChanges,
	}
	for _, p := range c.Plans {
		saved := savedPlan{ID: p.ID, Slug: p.Slug, Version: p.Version, Revision: p.Revision, Broken: p.Broken, Limits: p.Limits}
		if p.Broken == "" {
			if saved.Document, err = p.Document.MarshalJSON(); err != nil {
				return fmt.Errorf("encode the plan %s: %w", p.Slug, err)
			}
		}
		out.Plans = append(out.Plans, saved)
	}
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(out); err != nil {
		return fmt.Errorf("encode the snapshot: %w", err)
	}
	sum := sha256.Sum256(body.Bytes())
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	removeLeftovers(path)
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"+partial) // CreateTemp uses the mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	_, err = fmt.Fprintf(file, fileHead, fileForm, hex.EncodeToString(sum[:]))
	if err == nil {
		_, err = file.Write(body.Bytes())
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

// partial is the end of the name of a file that WriteFile has not renamed yet.
const partial = ".partial"

// removeLeftovers removes partial files that are at least an hour old. Nodes that were killed
// during WriteFile left them. A younger file may belong to a node that is writing. removeLeftovers
// ignores errors, because a leftover file does no harm.
func removeLeftovers(path string) {
	entries, _ := os.ReadDir(filepath.Dir(path))
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filepath.Base(path)+".") || !strings.HasSuffix(e.Name(), partial) {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.Remove(filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// ReadFile reads a file that WriteFile wrote. It returns an error if other users can access the
// file, if the file is damaged or has another format version, or if its rows come from another
// database than the argument database.
func ReadFile(path, database string) (Saved, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Saved{}, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return Saved{}, fmt.Errorf("%s has the mode %v: only its owner may have access", path, info.Mode().Perm())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Saved{}, err
	}
	head, body, _ := bytes.Cut(text, []byte("\n"))
	sum := sha256.Sum256(body)
	if want := fmt.Sprintf(fileHead, fileForm, hex.EncodeToString(sum[:])); string(head)+"\n" != want {
		return Saved{}, fmt.Errorf("%s is damaged, or of another form than %d", path, fileForm)
	}
	var in savedFile
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(&in); err != nil {
		return Saved{}, fmt.Errorf("%s cannot be read: %w", path, err)
	}
	if in.Database != database {
		return Saved{}, fmt.Errorf("%s is of another database", path)
	}
	c := Changes{
		Revision: in.Revision, Tenants: in.Tenants, Keys: in.Keys,
		Overrides: in.Overrides, Entries: in.Entries, Blocks: in.Blocks, Grants: in.Grants, PolicyChanges: in.PolicyChanges,
	}
	for _, saved := range in.Plans {
		p := PublishedPlan{
			ID: saved.ID, Slug: saved.Slug, Version: saved.Version, Revision: saved.Revision, Broken: saved.Broken, Limits: saved.Limits,
		}
		if p.Broken == "" {
			if p.Document, err = plans.Parse(saved.Document); err != nil {
				p.Broken = err.Error()
			}
		}
		c.Plans = append(c.Plans, p)
	}
	return Saved{At: in.At, Database: in.Database, Changes: c}, nil
}
