package cli

import (
	"encoding/json"
	"os"

	"github.com/headgate/headgate/internal/migrate"
)

type importCommand struct {
	Output
	From   string `arg:"" name:"format" enum:"envoy,kong,aws,nginx" help:"envoy (envoyproxy/ratelimit), kong (decK), aws (get-usage-plans) or nginx."`
	File   string `arg:"" help:"The configuration of the other product; - reads standard input, such as from nginx -T."`
	Plan   string `setting:"false" placeholder:"SLUG" help:"Slug of the plan. Default: from the file."`
	Tenant string `setting:"false" placeholder:"SLUG" help:"Add a tenant with the plan."`
}

// Help returns the text that --help shows after the flags.
func (importCommand) Help() string {
	return "Prints a file that apply takes; the table format is YAML. Standard error says for each line what the plans do not contain. " +
		"Nothing is sent."
}

// Run prints the plans that correspond to a configuration file of another product.
func (i importCommand) Run(t Terminal) error {
	text, name, err := readInput(t, i.File)
	if err != nil {
		return err
	}
	is, notes, err := migrate.Read(i.From, name, i.Plan, text)
	for _, n := range notes {
		t.say("%s", plain(n.String()))
	}
	if err != nil {
		return &Error{ExitInvalid, err}
	}
	policies := 0
	for slug, p := range is.Plans {
		policies += len(p.Policies)
		if i.Tenant != "" {
			is.Tenants = map[string]migrate.Tenant{i.Tenant: {Name: i.Tenant, Plan: slug}}
		}
	}
	if i.Tenant != "" && len(is.Plans) > 1 {
		return usage("--tenant: the file has %d plans; add the tenants to the printed file", len(is.Plans))
	}
	document, err := json.Marshal(is)
	if err != nil {
		return err
	}
	if i.Format == "table" {
		i.Format = "yaml"
	}
	if err := i.print(t, document, nil); err != nil {
		return err
	}
	t.say("plans: %d; policies: %d; notes: %d", len(is.Plans), policies, len(notes))
	return nil
}

// readInput returns the content of a file, and the name of the file for messages. The file "-" is
// standard input.
func readInput(t Terminal, file string) (text []byte, name string, err error) {
	if file != "-" {
		if text, err = os.ReadFile(file); err != nil {
			return nil, file, usage("%w", err)
		}
		return text, file, nil
	}
	if text, err = readAll(t.Stdin); err != nil {
		return nil, "", usage("standard input: %w", err)
	}
	return text, "standard input", nil
}
