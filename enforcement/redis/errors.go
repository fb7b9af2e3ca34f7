package redis

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/enforcement"
)

// notDone has the codes of error replies after which certainly nothing was charged, with a
// description of each. Redis sends these errors before it runs a script, or in place of the first
// write of a script. After any other error, the request may have been charged.
var notDone = map[string]string{
	"READONLY":                  "the server is a replica",
	"LOADING":                   "the server is still loading its data",
	"OOM":                       "the server's memory is full",
	"MASTERDOWN":                "the replica has lost its master",
	"MISCONF":                   "the server cannot save its data and accepts no writes",
	"BUSY":                      "the server runs another script",
	"NOREPLICAS":                "the server has too few replicas to accept writes",
	"NOAUTH":                    "the server requires a password",
	"WRONGPASS":                 "the server rejects the user and password",
	"NOPERM":                    "the user lacks a permission: see the package's list of commands",
	"CLUSTERDOWN":               "the cluster has no quorum, or a slot has no server",
	"TRYAGAIN":                  "the keys' slot is moving",
	"CROSSSLOT":                 "the keys of one home have several slots",
	"MOVED":                     "the keys' slot has moved; the client updates its slots",
	"ASK":                       "the keys' slot is moving",
	"NOSCRIPT":                  "the server does not keep scripts",
	"NOPROTO":                   "the server does not speak the protocol",
	"DENIED":                    "the server is in protected mode",
	"EXECABORT":                 "the server refused the call",
	"UNKILLABLE":                "the server runs another script",
	"NOTBUSY":                   "the server was told to stop scripts",
	"ERR max number of clients": "the server has too many clients",
	"ERR unknown command":       "the server does not know EVALSHA or EVAL",
}

// errorCode returns the code of an error reply if notDone has this code, otherwise "". Before Redis
// 7, the code of an error within a script is in the middle of the text. It is "ERR Error running
// script …: -CODE …" if the error ended the script, and "@user_script: 37: -CODE …" if the script
// caught the error.
func errorCode(text string) string {
	if caught, ok := strings.CutPrefix(text, "@user_script: "); ok {
		_, text, _ = strings.Cut(caught, ": ")
	}
	text = strings.TrimPrefix(text, "-")
	code, _, _ := strings.Cut(text, " ")
	if code != "ERR" {
		if _, known := notDone[code]; known {
			return code
		}
		return ""
	}
	for code := range notDone {
		if strings.HasPrefix(code, "ERR ") {
			if strings.HasPrefix(text, code) {
				return code
			}
		} else if strings.HasPrefix(text, "ERR Error running script") && strings.Contains(text, ": -"+code+" ") {
			return code
		}
	}
	return ""
}

// A failedCall is the error of a call that Redis did not execute, or that was not answered.
type failedCall struct{ error }

// Unwrap returns the error of the call.
func (f failedCall) Unwrap() error { return f.error }

// CommonCause returns a text that is the same for all calls. Package logging writes one line for
// all warnings with the same common cause.
func (failedCall) CommonCause() string { return "calls to redis fail" }

// classify returns the verdict and the error for the requests of a call that failed with err. sent
// reports whether the call was written to a connection. If it was not, nothing was charged.
func classify(err error, sent bool) (enforcement.Verdict, error) {
	var reply redis.Error
	switch {
	case errors.As(err, &reply):
		if code := errorCode(reply.Error()); code != "" {
			return enforcement.Failed, failedCall{fmt.Errorf("redis: %s: %w", notDone[code], err)}
		}
		if !sent {
			return enforcement.Failed, failedCall{fmt.Errorf("redis: connect: %w", err)}
		}
		return enforcement.Unknown, failedCall{fmt.Errorf("redis: take: %w", err)}
	case !sent:
		return enforcement.Failed, failedCall{fmt.Errorf("redis: %w: %w", enforcement.ErrNotReached, err)}
	}
	return enforcement.Unknown, failedCall{fmt.Errorf("redis: sent and not answered: %w", err)}
}

// isReply reports whether err is an error reply of Redis.
func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isTimeout reports whether err is a timeout.
func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
