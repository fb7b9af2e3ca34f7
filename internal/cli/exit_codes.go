package cli

import (
	"errors"
	"net/http"
)

// The exit codes of the commands.
const (
	ExitOK           = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitNotFound     = 3
	ExitUnauthorized = 4
	ExitConflict     = 5
	ExitInvalid      = 6
	ExitUnreachable  = 7
	ExitDenied       = 10
	ExitDifferences  = 11
	ExitFindings     = 12
)

// ExitCodes lists the exit codes with their meanings. docs/cli.md has the same list.
var ExitCodes = []struct {
	Code    int
	Meaning string
}{
	{ExitOK, "The command succeeded. A check passed."},
	{ExitFailure, "The command failed for a reason that no other code names."},
	{ExitUsage, "The command line, a setting, or a profile is wrong. Nothing was sent."},
	{ExitNotFound, "The object does not exist (404)."},
	{ExitUnauthorized, "The API key is missing, unknown, or lacks a scope (401, 403)."},
	{ExitConflict, "The object exists already, was changed by someone else, or is in use (409, 412, 428)."},
	{ExitInvalid, "The server rejected the input (400, 413, 415, 422), or a file cannot be read as what it should be."},
	{ExitUnreachable, "No answer: connection refused, timeout, overload, or a node that is not ready (429 of the API, 502, 503, 504)."},
	{ExitDenied, "The check was denied."},
	{ExitDifferences, "diff found differences."},
	{ExitFindings, "doctor found an error."},
}

// An Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the error without its exit code.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit code of an error. If the error has no exit code, the result is
// ExitFailure.
func ExitCode(err error) int {
	var e *Error
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &e):
		return e.Code
	}
	return ExitFailure
}

// codeOf returns the exit code for the status of a response.
func codeOf(status int) int {
	switch status {
	case http.StatusNotFound, http.StatusGone:
		return ExitNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		return ExitUnauthorized
	case http.StatusConflict, http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return ExitConflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return ExitInvalid
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ExitUnreachable
	}
	return ExitFailure
}
