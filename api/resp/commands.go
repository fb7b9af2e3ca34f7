package resp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/api"
	"github.com/headgate/headgate/internal/problem"
)

// The names of the commands whose reply is a decision.
const (
	checkCommand    = "HEADGATE.CHECK"
	throttleCommand = "CL.THROTTLE"
)

// run runs one command. It adds a check to the batch. Before any other command, it decides the checks in the batch, so that the replies
// have the order of the commands.
func (c *conn) run(name string, args []string) {
	switch {
	case strings.EqualFold(name, checkCommand):
		c.add(readCheck, args)
		return
	case strings.EqualFold(name, throttleCommand):
		c.add(readThrottle, args)
		return
	}
	c.decide()
	known, ok := commands[strings.ToUpper(name)]
	switch {
	case !ok && slices.Contains(transactionCommands, strings.ToUpper(name)):
		c.fail("ERR " + strings.ToUpper(name) + " is not supported: there are no transactions; " +
			"send a pipeline without MULTI, such as pipeline(transaction=False) of redis-py")
	case !ok:
		c.fail(fmt.Sprintf("ERR unknown command %.64q: Headgate answers HEADGATE.CHECK and the like, not the commands of a database", name))
	case len(args) < known.least || len(args) > known.most:
		c.fail("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	default:
		known.run(c, args)
	}
}

// transactionCommands are commands of Redis with which many clients send each pipeline unless told otherwise.
var transactionCommands = []string{"MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"}

// A command is a command other than a check. Most clients send some of these when they connect.
// Others make or change a reservation, or refund a check.
type command struct {
	least, most int // minimum and maximum number of arguments after the name
	run         func(*conn, []string)
}

var commands = map[string]command{
	"AUTH":    {1, 2, func(c *conn, args []string) { c.authenticated(args[len(args)-1], func() { c.status("OK") }) }},
	"HELLO":   {0, 6, (*conn).hello},
	"PING":    {0, 1, (*conn).ping},
	"ECHO":    {1, 1, func(c *conn, args []string) { c.text(args[0]) }},
	"SELECT":  {1, 1, (*conn).selectDatabase},
	"CLIENT":  {1, maxArguments, func(c *conn, _ []string) { c.status("OK") }},
	"COMMAND": {0, maxArguments, func(c *conn, _ []string) { c.array(0) }},
	"RESET":   {0, 0, func(c *conn, _ []string) { c.token, c.proto = "", 2; c.status("RESET") }},
	"QUIT":    {0, 0, func(c *conn, _ []string) { c.quit = true; c.status("OK") }},

	"HEADGATE.RESERVE": {4, maxArguments, answered((*conn).reserve)},
	"HEADGATE.SETTLE":  {2, maxArguments, answered((*conn).settle)},
	"HEADGATE.EXTEND":  {3, 5, answered((*conn).extend)},
	"HEADGATE.RELEASE": {2, maxArguments, answered((*conn).release)},
	"HEADGATE.REFUND":  {2, 4, answered((*conn).refund)},
}

// authenticated checks the token of an API key. If the key is valid, it stores the token for later checks and calls then, which appends
// the reply. If the key is not valid, it appends an error. The commands AUTH and HELLO ignore the user name.
func (c *conn) authenticated(token string, then func()) {
	decider := c.server.api.Load()
	if decider == nil {
		c.fail("LOADING the node is starting: it waits for its database")
		return
	}
	if _, err := decider.CallerOf(token, c.from); err != nil {
		p := api.Problem(err)
		if p.Kind == problem.Unauthenticated {
			c.fail("WRONGPASS the API key is not valid: send AUTH with a key that has the scope check")
			return
		}
		c.fail(errorText(p))
		return
	}
	c.token = strings.Clone(token) // without the copy, the token would keep the text of the whole pipeline in memory
	then()
}

// hello is HELLO [2|3 [AUTH user key] [SETNAME name]].
func (c *conn) hello(args []string) {
	proto := c.proto
	if len(args) > 0 {
		switch args[0] {
		case "2", "3":
			proto = int(args[0][0] - '0')
		default:
			c.fail("NOPROTO unsupported protocol version: use 2 or 3")
			return
		}
		args = args[1:]
	}
	greet := func() {
		c.proto = proto
		c.pairs(5)
		c.text("server")
		c.text("headgate")
		c.text("version")
		c.text(c.server.cfg.Version)
		c.text("proto")
		c.integer(int64(proto))
		c.text("mode")
		c.text("standalone")
		c.text("role")
		c.text("master")
	}
	token := ""
	for len(args) > 0 {
		switch option := strings.ToUpper(args[0]); {
		case option == "AUTH" && len(args) >= 3:
			token, args = args[2], args[3:]
		case option == "SETNAME" && len(args) >= 2:
			args = args[2:]
		default:
			c.fail("ERR syntax error in HELLO: the options are AUTH user key and SETNAME name")
			return
		}
	}
	if token == "" {
		greet()
		return
	}
	c.authenticated(token, greet)
}

func (c *conn) ping(args []string) {
	if len(args) == 1 {
		c.text(args[0])
		return
	}
	c.status("PONG")
}

func (c *conn) selectDatabase(args []string) {
	if args[0] != "0" {
		c.fail("ERR DB index is out of range: Headgate has only database 0")
		return
	}
	c.status("OK")
}

// errorText converts a problem to an error of RESP. The first word is a code that clients of Redis know. After
// TRYAGAIN, clients send the command again; nothing was charged. CONFLICT is not a code of Redis; the text explains it.
func errorText(p *problem.Problem) string {
	text := p.Message
	for _, f := range p.Fields {
		if f.Message == p.Message {
			continue
		}
		text += "; " + strings.TrimPrefix(f.Pointer, "/") + " " + f.Message
	}
	switch p.Kind {
	case problem.Unauthenticated:
		return "NOAUTH " + text
	case problem.Forbidden:
		return "NOPERM " + text
	case problem.Unavailable:
		return "TRYAGAIN " + text
	case problem.Conflict:
		return "CONFLICT " + text
	}
	return "ERR " + text
}

// number parses a whole number from least to most.
func number(text string, least, most int64) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("must be a whole number from %d to %d", least, most)
	}
	return n, nil
}
