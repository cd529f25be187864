package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
)

// FuzzVerify throws strings at a verifier: it never panics, and what it accepts was really signed with its secret.
func FuzzVerify(f *testing.F) {
	v := verifier(f, &clock{start})
	f.Add(hs256(good(nil)))
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := v.Verify(t.Context(), token); err != nil {
			if Detail(err) == "" || err.Error() != ErrUnauthenticated.Error() {
				t.Fatalf("answer %q, detail %q", err, Detail(err))
			}
			return
		}
		cut := strings.LastIndexByte(token, '.')
		mac := hmac.New(sha256.New, testSecret)
		mac.Write([]byte(token[:cut]))
		if base64.RawURLEncoding.EncodeToString(mac.Sum(nil)) != token[cut+1:] {
			t.Fatalf("accepted a forgery: %q", token)
		}
	})
}

// FuzzClaims signs any claims: an accepted principal is whole, in time, and granted nothing but well-formed patterns.
func FuzzClaims(f *testing.F) {
	v := verifier(f, &clock{start})
	header := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`))
	f.Fuzz(func(t *testing.T, claims []byte) {
		p, err := v.Verify(t.Context(), signText(header+"."+base64.RawURLEncoding.EncodeToString(claims), "HS256", testSecret))
		if err != nil {
			return
		}
		if p.Tenant == "" || !p.Expires.Add(v.options.Skew).After(start) {
			t.Fatalf("accepted %+v", p)
		}
		for _, g := range p.Grants {
			if _, err := ParsePattern(g.Datasets.String()); err != nil || g.Columns != nil && len(g.Columns) == 0 {
				t.Fatalf("grant %+v: %v", g, err)
			}
		}
	})
}

// FuzzPattern compares the matcher with an anchored regular expression.
func FuzzPattern(f *testing.F) {
	f.Fuzz(func(t *testing.T, pattern, name string) {
		p, err := ParsePattern(pattern)
		if err != nil || len(name) > 200 || len(pattern) > 200 {
			return
		}
		segments, ok := split(name)
		want := ok && len(segments) > 0 && oracle(pattern, name)
		if strings.ToValidUTF8(name, "") == name && p.Match(name) != want {
			t.Fatalf("%q against %q: %v, want %v", pattern, name, p.Match(name), want)
		}
	})
}
