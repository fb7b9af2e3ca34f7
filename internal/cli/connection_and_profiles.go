package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// A Terminal contains the environment and the standard streams of a command.
type Terminal struct {
	Getenv         func(string) string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Interactive    bool   // Stderr is a terminal
	Version        string // release of headgate, for the header User-Agent
}

// say writes a message to standard error.
func (t Terminal) say(format string, args ...any) { fmt.Fprintf(t.Stderr, format+"\n", args...) }

// TokenSetting is the environment variable with the API key. There is no flag for the key, because
// every user of the machine can read the command line of a process.
const TokenSetting = "HEADGATE_TOKEN"

// defaultURL is the address of an installation if no flag, environment variable or profile selects
// one.
const defaultURL = "http://127.0.0.1:8080"

// A Connection has the flags that select the installation and the output format.
type Connection struct {
	URL       string        `placeholder:"URL" help:"Address of the installation. Default: the default profile, or http://127.0.0.1:8080."`
	TokenFile string        `placeholder:"FILE" help:"File with the API key; - reads it from standard input. HEADGATE_TOKEN contains the key itself."`
	Profile   string        `placeholder:"NAME" help:"Profile with the address and the key. Default: the profile that the file names as default."`
	Profiles  string        `placeholder:"FILE" help:"File with the profiles. Default: headgate/profiles.yaml in the user's configuration folder."`
	Timeout   time.Duration `default:"30s" setting:"false" help:"How long to wait for an answer."`
	Output
}

// A profile is a named installation in the file with the profiles, so that users need not repeat
// its address and key.
type profile struct {
	URL       string `yaml:"url"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"token_file"`
}

// A profileFile is the content of the file with the profiles.
type profileFile struct {
	Default  string             `yaml:"default"`
	Profiles map[string]profile `yaml:"profiles"`
}

func usage(format string, args ...any) error {
	return &Error{ExitUsage, fmt.Errorf(format, args...)}
}

// place returns the address and the API key of the installation. Flags have precedence over
// environment variables, and environment variables have precedence over the profile.
func (c Connection) place(t Terminal) (at *url.URL, token string, err error) {
	if c.URL != "" && c.Profile != "" {
		return nil, "", usage("--url (HEADGATE_URL) and --profile (HEADGATE_PROFILE) exclude each other: give one of them")
	}
	var chosen profile
	if c.URL == "" {
		if chosen, err = c.profile(t); err != nil {
			return nil, "", err
		}
	}
	text := c.URL
	if text == "" {
		text = chosen.URL
	}
	if text == "" {
		text = defaultURL
	}
	at, err = url.Parse(text)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" ||
		at.RawQuery != "" || at.Fragment != "" || at.User != nil {
		return nil, "", usage("--url (HEADGATE_URL): must be an address like https://limits.example.com, without a user or a query")
	}
	token, err = c.token(t, chosen)
	return at, token, err
}

// token returns the API key. HEADGATE_TOKEN and --token-file have precedence over the key in
// the profile.
func (c Connection) token(t Terminal, chosen profile) (string, error) {
	read := func(setting, file string) (string, error) {
		var text []byte
		var err error
		if file == "-" {
			text, err = io.ReadAll(io.LimitReader(t.Stdin, 4096))
		} else {
			text, err = os.ReadFile(file)
		}
		if err != nil {
			return "", usage("%s: %w", setting, err)
		}
		return valid(setting, strings.TrimSpace(string(text)))
	}
	switch {
	case t.Getenv(TokenSetting) != "":
		return valid(TokenSetting, t.Getenv(TokenSetting))
	case c.TokenFile != "":
		return read("--token-file (HEADGATE_TOKEN_FILE)", c.TokenFile)
	case chosen.Token != "":
		return valid("token of the profile", chosen.Token)
	case chosen.TokenFile != "":
		return read("token_file of the profile", chosen.TokenFile)
	}
	return "", usage("no API key: set %s, HEADGATE_TOKEN_FILE or --token-file, or create a profile "+
		"(headgate key create prints an operator key)",
		TokenSetting)
}

// valid returns the token, or an error if a header cannot contain the token. In the error, setting
// names the source of the token. The error does not contain the token itself.
func valid(setting, token string) (string, error) {
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", usage("%s: is not an API key, which is one line without spaces", setting)
	}
	return token, nil
}

// profile returns the selected profile, or an empty profile if none is selected.
func (c Connection) profile(t Terminal) (profile, error) {
	path := c.Profiles
	if path == "" {
		path = defaultProfiles(t.Getenv)
	}
	content, err := readPrivate(path)
	if errors.Is(err, os.ErrNotExist) && c.Profile == "" && c.Profiles == "" {
		return profile{}, nil
	}
	if err != nil {
		return profile{}, usage("--profiles (HEADGATE_PROFILES): %w", err)
	}
	var file profileFile
	d := yaml.NewDecoder(bytes.NewReader(content))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return profile{}, usage("profiles in %s: %w", path, withoutValues(err))
	}
	name := c.Profile
	if name == "" {
		name = file.Default
	}
	if name == "" {
		return profile{}, nil
	}
	chosen, ok := file.Profiles[name]
	if !ok {
		names := slices.Sorted(maps.Keys(file.Profiles))
		return profile{}, usage("--profile (HEADGATE_PROFILE): %s has no profile %q%s", path, name, DidYouMean(name, names))
	}
	if chosen.URL == "" {
		return profile{}, usage("profile %q in %s has no url", name, path)
	}
	if rest, home := strings.CutPrefix(chosen.TokenFile, "~/"); home {
		chosen.TokenFile = filepath.Join(t.Getenv("HOME"), rest)
	}
	return chosen, nil
}

// withoutValues replaces YAML errors about a wrong type with errors that do not contain the value,
// because the value may be an API key.
func withoutValues(err error) error {
	if errors.As(err, new(*yaml.TypeError)) {
		return errors.New("must have default: NAME and profiles: {NAME: {url, token or token_file}}, and nothing else")
	}
	return err
}

// defaultProfiles returns the path of the profile file that is used if no setting names one.
func defaultProfiles(getenv func(string) string) string {
	folder := getenv("XDG_CONFIG_HOME")
	if folder == "" {
		folder = filepath.Join(getenv("HOME"), ".config")
	}
	return filepath.Join(folder, "headgate", "profiles.yaml")
}

// readPrivate reads a file that may contain API keys. It returns an error if other users of the
// machine can read the file.
func readPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s has the mode %04o, so that other users can read its keys: run chmod 600 %s", path, mode, path)
	}
	return io.ReadAll(io.LimitReader(file, 1<<20))
}

// DidYouMean returns ", did you mean …?" with the element of words that is closest to a misspelt
// word. It returns "" if none is close.
func DidYouMean(misspelt string, words []string) string {
	best, distance := "", len(misspelt)/3+2
	for _, word := range words {
		if d := editDistance(misspelt, word); d < distance {
			best, distance = word, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// editDistance returns how many characters must be inserted, deleted or replaced to turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
