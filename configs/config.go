// Package configs is the one configuration struct, its defaults, its checks, its sample files.
//
// A single table (keys.go) says what keys there are; reading YAML, the environment, the command line, explaining and the
// reference in docs/ all follow it. Values are plain: turning them into the options of other packages is the command's part.
package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:generate env WRITE_REFERENCE=1 go test -count=1 -run TestReferenceIsFresh .

// Config is everything an operator sets. The table of keys says what each value means.
type Config struct {
	Listen string // HOST:PORT or unix:/PATH
	Admin  string // HOST:PORT
	// SharedMemory is where clients on the same host ask for it: auto, off, or the path of a socket.
	SharedMemory string
	Insecure     bool
	TLS          TLS
	Memory       int64 // bytes, never 0 after Load
	Auth         Auth
	Datasets     []Dataset
	Refresh      time.Duration
	Snapshots    Snapshots
	Cache        Cache
	Tenants      []Tenant // in the order of the file
	Limits       Limits
	Telemetry    Telemetry
}

// TLS names the certificate of the gateway; both files or neither.
type TLS struct{ Cert, Key string }

// Auth says which tokens are believed.
type Auth struct {
	Mode        string // "jwt" or "none"
	Issuer      string
	Audience    string
	Keys        []Key
	TenantClaim string
	GrantsClaim string
	Skew        time.Duration
}

// Key is one file that tokens are verified with.
type Key struct {
	Algorithm string // HS256, RS256, ES256 or EdDSA
	File      string
	KeyID     string
}

// Dataset is one mount.
type Dataset struct {
	Name    string
	URL     string // an absolute path or a file:// URL, once relative ones are resolved
	Schema  string // "strict" or "widen", unless there are columns
	Columns []Column
	Files   []string
	Exclude []string
	// Partitioning is "hive", or empty.
	Partitioning string
}

// Column is one column of a schema that is given. Its type is not looked at here.
type Column struct{ Name, Type string }

// Snapshots says where snapshots outlive the gateway.
type Snapshots struct {
	Dir  string        // of the cache; empty: the user's own, unless there is a URL
	URL  string        // a bucket that gateways share; empty: none
	Keep time.Duration // unused for that long, they are deleted
}

// Cache says what is kept, and how many blocks are decoded at a time.
type Cache struct {
	Policy    string
	DiskLimit int64 // bytes of blocks in the cache directory; 0: none
	Decoders  Decoders
}

// Decoders bounds them; 0 stands for what suits the processors.
type Decoders struct {
	Min, Max    int
	GrowAt      int     // blocks that wait
	ShrinkBelow float64 // part of the processors that is in use
}

// Tenant is what one tenant may have.
type Tenant struct {
	Name   string
	Memory float64 // the part of what is kept that no other pushes it below; 0: none
}

// Limits bound how long things may wait, and how large they may be.
type Limits struct {
	StallTimeout, DrainTimeout, AdmissionTimeout time.Duration
	PageBytes                                    int64
}

// Telemetry says where the gateway reports to.
type Telemetry struct {
	OTLP string // http:// or https:// URL of a collector's OTLP/gRPC port; empty: none
	Log  string // debug, info, warn or error
}

// Source is where a configuration comes from. Flags win over the environment, that over the file, that over defaults.
type Source struct {
	File    string            // a YAML file; empty: none, and the auth mode is none unless something says otherwise
	Environ []string          // as os.Environ has it; nil: none
	Flags   map[string]string // texts by key, such as "auth.issuer", from the command line
	Keys    []Key             // from the command line; they replace auth.keys
	Names   map[string]string // what the command line calls keys, such as "--key" for "auth.keys[].file"
}

// InvalidError lists all that is wrong with a configuration, one line for each problem.
type InvalidError struct{ Problems []string }

func (e *InvalidError) Error() string {
	return "invalid configuration:\n  " + strings.Join(e.Problems, "\n  ")
}

// Load reads and checks a configuration. The error is an *InvalidError with every problem, or says why the file could not
// be read. Key, certificate and data files are not opened.
func Load(s Source) (*Config, error) {
	l := newLoader()
	l.names = s.Names
	if s.File != "" {
		text, err := os.ReadFile(s.File)
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		folder, err := filepath.Abs(filepath.Dir(s.File))
		if err != nil {
			return nil, fmt.Errorf("configuration: %w", err)
		}
		l.file, l.folder = s.File, folder
		if err := l.yaml(text); err != nil {
			return nil, err
		}
	}
	l.environ(s.Environ)
	l.flags(s.Flags, s.Keys)
	if s.File == "" && l.unspoken() {
		l.config.Auth.Mode = "none"
	}
	if l.config.Memory == 0 {
		l.config.Memory = memoryOf(os.DirFS("/"))
	}
	l.check()
	if len(l.problems) > 0 {
		return nil, &InvalidError{l.problems}
	}
	return l.config, nil
}

// loader gathers one configuration and its problems.
type loader struct {
	config   *Config
	file     string            // as named by the user; "" without a file
	folder   string            // what relative paths in the file are relative to
	names    map[string]string // flags by the keys that they set
	where    map[string]string // where a key was set, for the problems found later: "headrace.yaml:12"
	wrong    map[string]bool   // keys that have a problem: one each is enough
	problems []string
}

func newLoader() *loader {
	l := &loader{config: &Config{}, where: map[string]string{}, wrong: map[string]bool{}}
	l.defaults("")
	return l
}

// defaults fills in the keys right under a prefix: "" for the top and its groups, "datasets[]." for a new item.
func (l *loader) defaults(prefix string) {
	for _, k := range keys {
		rest, under := strings.CutPrefix(k.name, prefix)
		if under && !strings.ContainsAny(rest, "[*") && k.at != nil && k.standard != "" {
			k.store(l.config, k.parsed(k.standard))
		}
	}
}

// problem notes what is wrong with a key, once.
func (l *loader) problem(key, format string, args ...any) {
	where, known := l.where[key]
	if !known {
		where = l.file
	}
	l.problemAt(where, key, format, args...)
}

func (l *loader) problemAt(where, key, format string, args ...any) {
	if l.wrong[key] {
		return
	}
	l.wrong[key] = true
	name, line := l.name(key), ""
	if name != key {
		where = ""
	}
	for _, part := range []string{where, name} {
		if part != "" {
			line += part + ": "
		}
	}
	l.problems = append(l.problems, line+fmt.Sprintf(format, args...))
}

// commandLine is where flags are.
const commandLine = "command line"

// items are the numbers of items in what is shown of a key.
var items = regexp.MustCompile(`\[\d+\]`)

// name is what the user calls a key: its flag, if that is where it was set, or where it can be if there is no file.
func (l *loader) name(key string) string {
	where, set := l.where[key]
	flag := l.names[items.ReplaceAllString(key, "[]")]
	if flag != "" && (where == commandLine || !set && l.file == "") {
		return flag
	}
	return key
}

// set takes the text of one key from the file, the environment or the command line. The key may be shown with the number
// of its item, as in "datasets[2].name".
func (l *loader) set(k key, shown, where, folder, text string) {
	l.where[shown] = where
	value, err := k.parse(folder, text)
	if err != nil {
		l.problemAt(where, shown, "%v", err)
		return
	}
	k.store(l.config, value)
}

// unspoken reports whether nothing was said about who may ask.
func (l *loader) unspoken() bool {
	a := l.config.Auth
	return a.Mode == "" && a.Issuer == "" && a.Audience == "" && a.Keys == nil && !l.wrong["auth.mode"]
}
