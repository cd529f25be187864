package bucket

import (
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// address is a parsed path or URL of a bucket.
type address struct {
	scheme string // "file" for folders
	path   string // of a folder
	name   string // of a bucket in a store
	prefix string // in it, empty or ending in a slash
	query  url.Values
}

// parameters are the keys that the URLs of each store may have.
var parameters = map[string][]string{
	"s3":     {"region", "endpoint", "s3ForcePathStyle", "anonymous", "profile", "requests"},
	"gs":     {"endpoint", "anonymous", "requests"},
	"azblob": {"account", "endpoint", "anonymous", "requests"},
	"mem":    {"requests"},
}

// maxRequests is the most that the parameter requests may ask for.
const maxRequests = 4096

// parse takes a path, or a URL with one of the known schemes.
func parse(text string) (*address, error) {
	scheme, _, ok := strings.Cut(text, "://")
	if !ok {
		if meant := meant(text); meant != "" {
			return nil, fmt.Errorf("open bucket %q: did you mean %s? A folder of that name is ./%s", text, meant, text)
		}
		return &address{scheme: "file", path: text}, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	known, far := parameters[scheme]
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("open bucket %q: leave keys and passwords out of the URL: they are taken from the environment", u.Redacted())
	case u.Fragment != "":
		return nil, fmt.Errorf("open bucket %q: write %%23 for a # in a prefix", text)
	case scheme == "file":
		return parseFile(text, u)
	case !far:
		return nil, fmt.Errorf("open bucket %q: scheme %q is not one of file, s3, gs, azblob", text, scheme)
	case u.Host == "" || u.Port() != "":
		return nil, fmt.Errorf("open bucket %q: the name of the bucket comes right after ://; ?endpoint= names a server", text)
	}
	a := &address{scheme: scheme, name: u.Host, prefix: strings.Trim(u.Path, "/")}
	if a.prefix != "" {
		if !validKey(a.prefix) {
			return nil, fmt.Errorf("open bucket %q: the prefix has empty parts, '.' or '..'", text)
		}
		a.prefix += "/"
	}
	if a.query, err = url.ParseQuery(u.RawQuery); err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", text, err)
	}
	if err := a.check(known); err != nil {
		return nil, fmt.Errorf("open bucket %q: %w", text, err)
	}
	return a, nil
}

// meant is the URL that a path with a scheme in front was probably to be; empty:
// it has none.
func meant(path string) string {
	scheme, rest, _ := strings.Cut(path, ":")
	rest = strings.TrimLeft(rest, "/")
	switch {
	case scheme == path:
		return ""
	case scheme == "file":
		return "file:///" + rest
	case parameters[scheme] != nil:
		return scheme + "://" + rest
	}
	return ""
}

func parseFile(text string, u *url.URL) (*address, error) {
	if u.Host != "" && u.Host != "localhost" {
		return nil, fmt.Errorf("open bucket %q: a file URL names no other host", text)
	}
	if u.RawQuery != "" {
		return nil, fmt.Errorf("open bucket %q: a file URL has no parameters", text)
	}
	return &address{scheme: "file", path: u.Path}, nil
}

// check refuses parameters that are unknown, doubled, or have no proper value.
func (a *address) check(known []string) error {
	for key, values := range a.query {
		if !slices.Contains(known, key) {
			return fmt.Errorf("parameter %q is not one of %s", key, strings.Join(known, ", "))
		}
		if len(values) != 1 || values[0] == "" {
			return fmt.Errorf("parameter %q needs one value", key)
		}
	}
	for _, key := range []string{"anonymous", "s3ForcePathStyle"} {
		if v := a.query.Get(key); v != "" && v != "true" && v != "false" {
			return fmt.Errorf("parameter %q is true or false, not %q", key, v)
		}
	}
	if v := a.query.Get("requests"); v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > maxRequests {
			return fmt.Errorf("parameter \"requests\" is a number from 1 to %d, not %q", maxRequests, v)
		}
	}
	if v := a.query.Get("endpoint"); v != "" {
		u, err := url.Parse(v)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
			return fmt.Errorf("parameter \"endpoint\" is a URL such as https://minio.example.com:9000, not %q", v)
		}
	}
	return nil
}

// is tells whether a parameter is true.
func (a *address) is(key string) bool { return a.query.Get(key) == "true" }

// server names the bucket and how it is reached; the prefix does not matter.
func (a *address) server() string { return a.scheme + "://" + a.name + "?" + a.query.Encode() }

// Check says what is wrong with the path or URL of a bucket, before anything is
// opened.
func Check(text string) error {
	_, err := parse(text)
	return err
}

// Far tells whether a URL leads to a bucket in a store, where each request is a
// round trip.
func Far(text string) bool {
	a, err := parse(text)
	return err == nil && a.scheme != "file"
}

// Base returns the name of the folder that text, as for Open, leads to: the last
// part of its absolute path; in a store that of the prefix, or the bucket's.
func Base(text string) (string, error) {
	a, err := parse(text)
	switch {
	case err != nil:
		return "", err
	case a.scheme != "file":
		all := a.name + "/" + strings.TrimSuffix(a.prefix, "/")
		all = strings.TrimSuffix(all, "/")
		return all[strings.LastIndexByte(all, '/')+1:], nil
	}
	abs, err := filepath.Abs(a.path)
	if err != nil {
		return "", fmt.Errorf("name of folder %q: %w", text, err)
	}
	return filepath.Base(abs), nil
}

// Place names where text, as for Open, leads to, the same however it is written.
// Pins of its objects mean the same to all who read it if it is shared: those of
// a local folder are this machine's, and other machines may see it elsewhere.
func Place(text string) (name string, shared bool, err error) {
	a, err := parse(text)
	if err != nil {
		return "", false, err
	}
	if a.scheme == "file" {
		abs, err := filepath.Abs(a.path)
		return "file://" + abs, false, err
	}
	return fmt.Sprintf("%s://%s/%s %s %s", a.scheme, a.name, a.prefix, a.query.Get("endpoint"), a.query.Get("account")), a.scheme != "mem", nil
}
