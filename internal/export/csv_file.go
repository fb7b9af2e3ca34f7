package export

import (
	"encoding/csv"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"time"
)

const (
	// DefaultMaxRows is the maximum number of rows of a file.
	DefaultMaxRows = 100_000
	// pageRows is the number of rows that are read from the source and sent to the client at once.
	pageRows = 500
	// writeWithin is the maximum time to send pageRows rows to a slow client.
	writeWithin = 30 * time.Second
)

// A Column is a column of a file. Name is in the header row; Text explains the column in the API
// reference.
type Column struct{ Name, Text string }

// A File is a CSV file with a header row.
type File struct {
	// Name is the name of the downloaded file, without ".csv".
	Name    string
	Columns []Column
	// Rows returns the rows. If it returns an error, it returns no further rows.
	Rows iter.Seq2[[]string, error]
	// MaxRows is the maximum number of rows. If there are more, the last line of the file says so.
	// This line has only one column, so that programs which read the file report an error. Default:
	// DefaultMaxRows.
	MaxRows int
}

// Serve sends the file. If the first row cannot be read, Serve sends nothing and returns the error,
// so that the caller can send an error response. If an error occurs later, Serve logs it and panics
// with http.ErrAbortHandler. The panic closes the connection, so that the client does not mistake a
// part of the file for the whole file.
func (f File) Serve(w http.ResponseWriter, log *slog.Logger) error {
	next, stop := iter.Pull2(f.Rows)
	defer stop()
	row, err, more := next()
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="`+f.Name+`.csv"`)
	if err := f.write(w, row, more, next); err != nil {
		log.Warn("download aborted", "file", f.Name, "error", err)
		panic(http.ErrAbortHandler)
	}
	return nil
}

// write sends the header, then row, then the rows that next returns. If more is false, there is no
// row at all.
func (f File) write(w http.ResponseWriter, row []string, more bool, next func() ([]string, error, bool)) error {
	out, control := csv.NewWriter(w), http.NewResponseController(w)
	// The function send ignores errors of the ResponseController, because not every writer has
	// deadlines or can flush. The csv.Writer keeps its first error for later calls.
	send := func() error {
		_ = control.SetWriteDeadline(time.Now().Add(writeWithin))
		out.Flush()
		_ = control.Flush()
		return out.Error()
	}
	head := make([]string, len(f.Columns))
	for i, c := range f.Columns {
		head[i] = c.Name
	}
	_ = out.Write(head)
	most := f.MaxRows
	if most == 0 {
		most = DefaultMaxRows
	}
	var err error
	for n := 1; more; n++ {
		if err != nil {
			return err
		}
		if n > most {
			_ = out.Write([]string{fmt.Sprintf("cut off: this file has at most %d lines, and there are more; choose a shorter time", most)})
			break
		}
		for i := range row {
			row[i] = safeCell(row[i])
		}
		_ = out.Write(row)
		if n%pageRows == 0 {
			if err := send(); err != nil {
				return err
			}
		}
		row, err, more = next()
	}
	return send()
}

// safeCell returns a text for a cell that spreadsheet programs do not interpret as a formula.
func safeCell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

// pages returns all rows. It calls fetch repeatedly for one page of rows at a time. The argument of
// fetch is the last row of the previous page, or nil for the first page. A page with fewer than
// pageRows rows is the last page. show converts a row to cells.
func pages[T any](fetch func(last *T) ([]T, error), show func(T) ([]string, error)) iter.Seq2[[]string, error] {
	return func(yield func([]string, error) bool) {
		var last *T
		for {
			rows, err := fetch(last)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range rows {
				if fields, err := show(r); !yield(fields, err) || err != nil {
					return
				}
			}
			if len(rows) < pageRows {
				return
			}
			last = &rows[len(rows)-1]
		}
	}
}
