package configs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

const environPrefix = "HEADRACE_"

// foreign are variables with our prefix that are no keys: they belong to the clients and to development.
var foreign = []string{"HEADRACE_TOKEN", "HEADRACE_PYTHON", "HEADRACE_CORPORA", "HEADRACE_STORES"}

// linked matches what Kubernetes and Docker set for a service whose name starts with "headrace".
var linked = regexp.MustCompile(`^[A-Z0-9_]+_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|_PORT=\w+://`)

// environName is the variable that sets a key: HEADRACE_AUTH_ISSUER for auth.issuer.
func environName(key string) string {
	return environPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environ takes the scalars that are set in the environment. Relative paths are left to the working directory. An empty
// variable counts as unset, which is how most tools pass on what they do not have.
func (l *loader) environ(environ []string) {
	for _, line := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, environPrefix) || text == "" || slices.Contains(foreign, name) || linked.MatchString(line) {
			continue
		}
		i := slices.IndexFunc(keys, func(k key) bool { return !k.inList() && environName(k.name) == name })
		switch {
		case i < 0 && inFileOnly(name) != "":
			l.problems = append(l.problems, name+": "+inFileOnly(name)+" can only be set in a file")
		case i < 0:
			l.problems = append(l.problems, name+": no such key"+environHint(name))
		case !keys[i].scalar():
			l.problems = append(l.problems, name+": "+keys[i].name+" can only be set in a file")
		default:
			l.set(keys[i], keys[i].name, name, "", text)
		}
	}
}

// inFileOnly is the list or table that a variable is to set a part of, or nothing.
func inFileOnly(name string) string {
	for _, k := range keys {
		if !k.inList() && !k.scalar() && strings.HasPrefix(name, environName(k.name)+"_") {
			return k.name
		}
	}
	return ""
}

// flags takes the texts and the keys of the command line.
func (l *loader) flags(flags map[string]string, given []Key) {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		k, known := find(name)
		if !known || !k.scalar() {
			l.problemAt(commandLine, name, "no such key%s", hint(name))
			continue
		}
		l.set(k, name, commandLine, "", flags[name])
	}
	if given != nil {
		l.config.Auth.Keys = nil
	}
	for i, g := range given {
		l.config.Auth.Keys = append(l.config.Auth.Keys, Key{KeyID: g.KeyID})
		for _, part := range []struct{ name, text string }{{"algorithm", g.Algorithm}, {"file", g.File}} {
			k, _ := find("auth.keys[]." + part.name)
			l.set(k, index("auth.keys", i)+"."+part.name, commandLine, "", part.text)
		}
	}
}
