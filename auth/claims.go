package auth

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

// maxName bounds tenants and subjects, in bytes: they become parts of logs and metrics.
const maxName = 256

// lastDate is the end of the year 9999. Numbers beyond it overflow somewhere, so they are not dates.
const lastDate = 253402300799

// principal reads who the claims of a verified token speak of.
func (v *JWT) principal(claims jwt.MapClaims) (*Principal, error) {
	for _, name := range []string{"exp", "nbf", "iat"} {
		if f, ok := claims[name].(float64); ok && (f < 0 || f > lastDate) {
			return nil, fmt.Errorf("%s is not a date", name)
		}
	}
	expires, err := claims.GetExpirationTime()
	if err != nil || expires == nil {
		return nil, errors.New("exp is not a date")
	}
	p := &Principal{Expires: expires.Time}
	if raw, ok := claims["sub"]; ok {
		if p.Subject, err = name("sub", raw); err != nil {
			return nil, err
		}
	}
	raw, ok := claim(claims, v.options.TenantClaim)
	if !ok {
		return nil, fmt.Errorf("claim %s (the tenant) is missing", v.options.TenantClaim)
	}
	if p.Tenant, err = name(v.options.TenantClaim, raw); err != nil {
		return nil, err
	}
	if raw, ok = claim(claims, v.options.GrantsClaim); ok {
		if p.Grants, err = parseGrants(raw); err != nil {
			return nil, fmt.Errorf("claim %s: %w", v.options.GrantsClaim, err)
		}
	}
	return p, nil
}

// claim looks a claim up by its whole name, then along its dots. Whole names come first because many issuers use URLs.
func claim(claims map[string]any, name string) (any, bool) {
	if v, ok := claims[name]; ok {
		return v, true
	}
	first, rest, dotted := strings.Cut(name, ".")
	inner, ok := claims[first].(map[string]any)
	if !dotted || !ok {
		return nil, false
	}
	return claim(inner, rest)
}

// name reads a claim that will be shown to operators.
func name(what string, raw any) (string, error) {
	s, ok := raw.(string)
	switch {
	case !ok:
		return "", fmt.Errorf("claim %s is not a string", what)
	case s == "":
		return "", fmt.Errorf("claim %s is empty", what)
	case len(s) > maxName:
		return "", fmt.Errorf("claim %s is longer than %d bytes", what, maxName)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return "", fmt.Errorf("claim %s has bad UTF-8 or a control character", what)
	}
	return s, nil
}

// parseGrants reads the grants claim: a list of patterns and of {"datasets": pattern, "columns": [names]}. Whatever it
// does not understand is an error: to skip a word like "column" would grant more than was meant.
func parseGrants(raw any) ([]Grant, error) {
	items, ok := raw.([]any)
	if !ok {
		return nil, errors.New("not a list of grants")
	}
	grants := make([]Grant, 0, len(items))
	for i, item := range items {
		g, err := parseGrant(item)
		if err != nil {
			return nil, fmt.Errorf("grant %d: %w", i, err)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

func parseGrant(raw any) (Grant, error) {
	object, ok := raw.(map[string]any)
	if !ok {
		object = map[string]any{"datasets": raw}
	}
	text, ok := object["datasets"].(string)
	if !ok {
		return Grant{}, errors.New("neither a pattern nor an object with `datasets`")
	}
	pattern, err := ParsePattern(text)
	if err != nil {
		return Grant{}, err
	}
	g := Grant{Datasets: pattern}
	if columns, ok := object["columns"]; ok {
		if g.Columns, err = parseColumns(columns); err != nil {
			return Grant{}, err
		}
	}
	for key := range object {
		if key != "datasets" && key != "columns" {
			return Grant{}, errors.New("a grant has no keys but `datasets` and `columns`")
		}
	}
	return g, nil
}

func parseColumns(raw any) ([]string, error) {
	items, ok := raw.([]any)
	if !ok || len(items) == 0 {
		return nil, errors.New("`columns` is not a list of names; leave it out to grant them all")
	}
	names := make([]string, len(items))
	for i, item := range items {
		if names[i], ok = item.(string); !ok || names[i] == "" {
			return nil, errors.New("`columns` is not a list of names")
		}
	}
	return names, nil
}
