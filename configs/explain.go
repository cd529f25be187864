package configs

import (
	"cmp"
	"fmt"
	"io"
	"strings"
)

// Explain prints every key with its type, its default and its meaning.
func Explain(w io.Writer) error {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&b, "%s  (%s%s)\n", k.name, k.kind, prefixed(", default ", cmp.Or(k.shown, k.standard)))
		for _, line := range wrap(strings.ReplaceAll(k.meaning(), "`", ""), 92) {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	fmt.Fprintf(&b, "\nVariables override single values: %s for auth.issuer. Command line flags override both.\n", environName("auth.issuer"))
	_, err := io.WriteString(w, b.String())
	return err
}

// meaning is the description with the values that are allowed.
func (k key) meaning() string {
	m := k.about
	if !k.served() {
		m += " Not supported yet."
	}
	if len(k.one) > 1 {
		m += " One of " + strings.Join(apply(k.one, quoted), ", ") + "."
	}
	if k.soon != nil {
		m += " Not supported yet: " + strings.Join(apply(k.soon, quoted), ", ") + "."
	}
	return m
}

func quoted(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func prefixed(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}

func apply(list []string, f func(string) string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = f(s)
	}
	return out
}

// wrap breaks a text into lines of at most so many bytes, where words allow.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line += prefixed(strings.Repeat(" ", min(1, len(line))), word)
	}
	return append(lines, line)
}
