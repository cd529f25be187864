package auth

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestGrantsClaim(t *testing.T) {
	v := verifier(t, &clock{start})
	raw := func(s string) any { return json.RawMessage(s) }
	for text, want := range map[string]string{
		`["imagenet/**"]`: "imagenet/** all",
		`[]`:              "",
		`["a","b/*"]`:     "a all; b/* all",
		`[{"datasets":"users/*","columns":["age"]},"a"]`: "users/* [age]; a all",
		`[{"datasets":"u"}]`:                             "u all",
		// Everything else is malformed, and a malformed grant grants nothing to nobody.
		`null`: "!", `"imagenet/**"`: "!", `{}`: "!", `7`: "!", `[7]`: "!", `[null]`: "!", `[[]]`: "!", `[""]`: "!",
		`["/a"]`: "!", `["a//b"]`: "!", `["a/"]`: "!", `["a/../b"]`: "!", `["a**"]`: "!", `["a\u0000"]`: "!",
		`[{"columns":["age"]}]`: "!", `[{"datasets":"u","columns":[]}]`: "!", `[{"datasets":"u","columns":null}]`: "!",
		`[{"datasets":"u","columns":"age"}]`: "!", `[{"datasets":"u","columns":[1]}]`: "!", `[{"datasets":"u","columns":[""]}]`: "!",
		`[{"datasets":"u","column":["age"]}]`: "!", `[{"datasets":["u"]}]`: "!", `[{"Datasets":"u"}]`: "!",
		`["a",{"datasets":"u","deny":true}]`: "!",
	} {
		t.Run(text, func(t *testing.T) {
			token := hs256(good(object{"headrace": raw(text)}))
			if want == "!" {
				refused(t, v, token)
				return
			}
			var got []string
			for _, g := range accepted(t, v, token).Grants {
				columns := "all"
				if g.Columns != nil {
					columns = fmt.Sprint(g.Columns)
				}
				got = append(got, g.Datasets.String()+" "+columns)
			}
			if strings.Join(got, "; ") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	if p := accepted(t, v, hs256(good(object{"headrace": nil}))); len(p.Grants) != 0 {
		t.Errorf("no grants became %v", p.Grants)
	}
}

func TestTenantAndSubject(t *testing.T) {
	v := verifier(t, &clock{start})
	for _, bad := range []any{nil, "", 7, []any{"vision"}, object{"name": "vision"}, "a\nb", strings.Repeat("x", 257)} {
		refused(t, v, hs256(good(object{"tenant": bad})))
		if bad != nil {
			refused(t, v, hs256(good(object{"sub": bad})))
		}
	}
	if p := accepted(t, v, hs256(good(object{"sub": nil}))); p.Subject != "" {
		t.Errorf("subject %q out of nothing", p.Subject)
	}
}

func TestNestedClaims(t *testing.T) {
	c := &clock{start}
	v, err := NewJWT(Options{
		Issuer: issuer, Audience: audience, Keys: []Key{{Algorithm: "HS256", File: file(t, "s", testSecret)}},
		TenantClaim: "org.unit", GrantsClaim: "https://example.com/grants", Now: c.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	nested := good(object{"org": object{"unit": "vision"}, "https://example.com/grants": []any{"a"}, "tenant": "wrong"})
	if p := accepted(t, v, hs256(nested)); p.Tenant != "vision" || len(p.Grants) != 1 {
		t.Errorf("%+v", p)
	}
	if p := accepted(t, v, hs256(good(object{"org.unit": "whole", "org": object{"unit": "x"}}))); p.Tenant != "whole" {
		t.Errorf("%+v", p)
	}
	for _, org := range []any{"vision", object{}, object{"unit": object{}}, []any{object{"unit": "a"}}} {
		refused(t, v, hs256(good(object{"org": org})))
	}
}

func TestMintedTokensVerify(t *testing.T) {
	c := &clock{start}
	for name, p := range pairs() {
		m := Minting{
			KeyFile: file(t, "private", privatePEM(p.private)), Algorithm: name, KeyID: "k1", Issuer: issuer, Audience: audience,
			Subject: "me", Tenant: "vision", Grants: []string{"a/**", ` {"datasets":"u","columns":["x"]}`}, TTL: time.Minute, Now: c.now,
		}
		token, err := Mint(m)
		if err != nil {
			t.Fatal(err)
		}
		v := verifier(t, c, Key{Algorithm: name, File: file(t, "public", publicPEM(p.public)), ID: "k1"})
		got := accepted(t, v, token)
		want := []Grant{{Datasets: must(ParsePattern("a/**"))}, {Datasets: must(ParsePattern("u")), Columns: []string{"x"}}}
		if got.Tenant != "vision" || got.Subject != "me" || !reflect.DeepEqual(got.Grants, want) ||
			!got.Expires.Equal(start.Add(time.Minute)) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	token := must(Mint(Minting{
		KeyFile: file(t, "s", testSecret), Algorithm: "HS256", Issuer: issuer, Audience: audience,
		Tenant: "t", TTL: time.Minute, Now: c.now,
	}))
	if p := accepted(t, verifier(t, c), token); len(p.Grants) != 0 || p.Subject != "" {
		t.Errorf("%+v", p)
	}
}

func TestMintRefuses(t *testing.T) {
	fine := Minting{KeyFile: file(t, "s", testSecret), Algorithm: "HS256", Issuer: issuer, Audience: audience, Tenant: "t", TTL: time.Minute}
	public := file(t, "public", publicPEM(pairs()["ES256"].public))
	encrypted := file(t, "enc", block("ENCRYPTED PRIVATE KEY", []byte{1}))
	for want, change := range map[string]func(*Minting){
		"issuer": func(m *Minting) { m.Issuer = "" }, "audience": func(m *Minting) { m.Audience = "" },
		"tenant": func(m *Minting) { m.Tenant = "" }, "second": func(m *Minting) { m.TTL = 0 },
		"`**`":              func(m *Minting) { m.Grants = []string{"a**"} },
		"columns":           func(m *Minting) { m.Grants = []string{`{"datasets":"a","columns":[]}`} },
		"JSON":              func(m *Minting) { m.Grants = []string{`{"datasets":`} },
		"supported are":     func(m *Minting) { m.Algorithm = "none" },
		"no such file":      func(m *Minting) { m.KeyFile += "x" },
		"not a private key": func(m *Minting) { m.Algorithm, m.KeyFile = "ES256", public },
		"encrypted":         func(m *Minting) { m.Algorithm, m.KeyFile = "ES256", encrypted },
		"wrong kind": func(m *Minting) {
			m.Algorithm, m.KeyFile = "RS256", file(t, "es", privatePEM(pairs()["ES256"].private))
		},
		"refuse more than": func(m *Minting) {
			m.Grants = []string{`{"datasets":"a","columns":["` + strings.Repeat("x", MaxToken) + `"]}`}
		},
	} {
		m := fine
		change(&m)
		_, err := Mint(m)
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, "JSON")) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
