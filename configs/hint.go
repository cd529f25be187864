package configs

import (
	"fmt"
	"slices"
	"strings"
)

// hint ends a message about an unknown key with the one that was probably meant, if any is near.
func hint(name string) string {
	var known []string
	for _, k := range keys {
		for at := range k.name { // groups are keys, too
			if k.name[at] == '.' {
				known = append(known, strings.TrimSuffix(k.name[:at], "[]"))
			}
		}
		known = append(known, k.name)
	}
	if near := nearest(name, known); near != "" {
		return fmt.Sprintf("; did you mean %s?", near)
	}
	for _, k := range keys { // the right word in the wrong place
		if tail(k.name) == tail(name) {
			return fmt.Sprintf("; did you mean %s?", k.name)
		}
	}
	return beside(name)
}

// beside lists the keys that are in the group of an unknown one, if it is in one.
func beside(name string) string {
	prefix := strings.TrimSuffix(name, tail(name))
	var all []string
	for _, k := range keys {
		if rest, in := strings.CutPrefix(k.name, prefix); in && prefix != "" && k.at != nil {
			rest, _, _ = strings.Cut(rest, ".")
			if rest = strings.TrimSuffix(rest, "[]"); !slices.Contains(all, rest) {
				all = append(all, rest)
			}
		}
	}
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("; there are: %s", strings.Join(all, ", "))
}

func environHint(name string) string {
	var known []string
	for _, k := range keys {
		if k.scalar() {
			known = append(known, strings.TrimPrefix(environName(k.name), environPrefix))
		}
	}
	if near := nearest(strings.TrimPrefix(name, environPrefix), known); near != "" {
		return fmt.Sprintf("; did you mean %s?", environPrefix+near)
	}
	return ""
}

func tail(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// nearest returns the known word that takes the fewest edits, if these are few for its length.
func nearest(word string, known []string) string {
	best, least := "", 1+len(tail(word))/3
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// distance counts the letters to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := corner
			if a[i] != b[j] {
				replace++
			}
			corner = row[j+1]
			row[j+1] = min(replace, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
