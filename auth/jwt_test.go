package auth

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// refused checks the one bland answer, that the log learns more, and that neither shows a piece of the token.
func refused(t *testing.T, v *JWT, token string) string {
	t.Helper()
	p, err := v.Verify(t.Context(), token)
	if err == nil {
		t.Fatalf("accepted as %+v", p)
	}
	if !errors.Is(err, ErrUnauthenticated) || err.Error() != ErrUnauthenticated.Error() {
		t.Fatalf("error %q tells more than it should", err)
	}
	detail := Detail(err)
	if detail == "" || detail == err.Error() || len(detail) > 200 {
		t.Fatalf("detail %q", detail)
	}
	for part := range strings.SplitSeq(token, ".") {
		if len(part) >= 8 && strings.Contains(detail, part) {
			t.Fatalf("detail %q shows the token", detail)
		}
	}
	return detail
}

func accepted(t *testing.T, v *JWT, token string) *Principal {
	t.Helper()
	p, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Fatalf("refused: %s", Detail(err))
	}
	return p
}

func TestEveryAlgorithm(t *testing.T) {
	keys := []Key{{Algorithm: "HS256", File: file(t, "secret", append(testSecret, '\n'))}}
	for name, p := range pairs() {
		keys = append(keys, Key{Algorithm: name, File: file(t, name, publicPEM(p.public))})
	}
	v := verifier(t, &clock{start}, keys...)
	for name, p := range pairs() {
		got := accepted(t, v, sign(object{"alg": name}, good(nil), p.private))
		if got.Tenant != "vision" || got.Subject != "job-7" || !got.Expires.Equal(start.Add(time.Hour)) {
			t.Errorf("%s: %+v", name, got)
		}
		one := verifier(t, &clock{start}, Key{Algorithm: name, File: file(t, "cert", certificatePEM(p))})
		accepted(t, one, sign(object{"alg": name}, good(nil), p.private))
		refused(t, one, hs256(good(nil)))
	}
	accepted(t, v, hs256(good(nil)))
}

func TestAlgorithmsAreOurs(t *testing.T) {
	v := verifier(t, &clock{start})
	refused(t, v, sign(object{"alg": "none"}, good(nil), jwt.UnsafeAllowNoneSignatureType))
	refused(t, v, sign(object{"alg": "HS512"}, good(nil), testSecret))
	refused(t, v, sign(object{"alg": "RS256"}, good(nil), pairs()["RS256"].private))
	unsigned := hs256(good(nil))
	refused(t, v, unsigned[:strings.LastIndex(unsigned, ".")+1])
	for _, name := range []string{"NONE", "hs256", ""} {
		token := strings.Split(hs256(good(nil)), ".")
		token[0] = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + name + `"}`))
		refused(t, v, strings.Join(token, "."))
	}
}

// An attacker who knows the public key must not be able to use it as an HMAC secret.
func TestB44PublicKeyIsNoSecret(t *testing.T) {
	for name, p := range pairs() {
		text := publicPEM(p.public)
		files := []Key{{Algorithm: name, File: file(t, "public", text)}}
		alone := verifier(t, &clock{start}, files...)
		beside := verifier(t, &clock{start}, append(files, Key{Algorithm: "HS256", File: file(t, "secret", testSecret)})...)
		secrets := map[string][]byte{
			"PEM": text, "PEM without newline": text[:len(text)-1],
			"certificate": certificatePEM(p), "JWK": jwk(p.public),
		}
		for what, secret := range secrets {
			token := sign(object{"alg": "HS256"}, good(nil), secret)
			refused(t, alone, token)
			refused(t, beside, token)
			_, err := NewJWT(Options{
				Issuer: issuer, Audience: audience,
				Keys: []Key{{Algorithm: "HS256", File: file(t, "oops", secret)}},
			})
			if !errors.Is(err, ErrKey) {
				t.Errorf("%s, %s as the secret file: %v", name, what, err)
			}
		}
	}
}

func jwk(public any) []byte {
	fields := object{"kty": "OKP", "crv": "Ed25519", "x": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
	if k, ok := public.(*rsa.PublicKey); ok {
		enc := base64.RawURLEncoding.EncodeToString
		fields = object{"kty": "RSA", "n": enc(k.N.Bytes()), "e": enc(big.NewInt(int64(k.E)).Bytes())}
	}
	return must(json.Marshal(fields))
}

func TestB46Audience(t *testing.T) {
	v := verifier(t, &clock{start})
	accepted(t, v, hs256(good(object{"aud": audience})))
	accepted(t, v, hs256(good(object{"aud": []any{"other", audience}})))
	for name, aud := range map[string]any{
		"array without us": []any{"other"}, "empty array": []any{}, "number": 7, "absent": nil,
		"other": "other", "empty": "", "prefix": "headrace2", "upper": "HEADRACE", "mixed array": []any{audience, 7},
		"object": object{audience: true}, "nested array": []any{[]any{audience}},
	} {
		t.Run(name, func(t *testing.T) { refused(t, v, hs256(good(object{"aud": aud}))) })
	}
}

func TestB49TimesAndSkew(t *testing.T) {
	at := func(d time.Duration) int64 { return start.Add(d).Unix() }
	for _, c := range []struct {
		name   string
		claims object
		ok     bool
	}{
		{"exp 29 s ago", object{"exp": at(-29 * time.Second)}, true},
		{"exp 30 s ago", object{"exp": at(-30 * time.Second)}, false},
		{"exp 10 min ago", object{"exp": at(-10 * time.Minute)}, false},
		{"nbf in 30 s", object{"nbf": at(30 * time.Second)}, true},
		{"nbf in 31 s", object{"nbf": at(31 * time.Second)}, false},
		{"nbf in 10 min", object{"nbf": at(10 * time.Minute)}, false},
		{"iat in 30 s", object{"iat": at(30 * time.Second)}, true},
		{"iat in 10 min", object{"iat": at(10 * time.Minute)}, false},
		{"no exp", object{"exp": nil}, false},
		{"exp null", object{"exp": json.RawMessage("null")}, false},
		{"exp zero", object{"exp": 0}, false},
		{"exp text", object{"exp": "4000000000"}, false},
		{"exp negative", object{"exp": -1}, false},
		{"exp huge", object{"exp": json.RawMessage("1e300")}, false},
		{"exp 1e19", object{"exp": json.RawMessage("1e19")}, false},
		{"nbf huge", object{"nbf": json.RawMessage("1e300")}, false},
		{"exp with a fraction", object{"exp": float64(at(time.Hour)) + 0.5}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verifier(t, &clock{start})
			if token := hs256(good(c.claims)); c.ok {
				accepted(t, v, token)
			} else {
				refused(t, v, token)
			}
		})
	}
}

func TestMalformedTokens(t *testing.T) {
	v := verifier(t, &clock{start})
	fine := hs256(good(nil))
	flipped := []byte(fine)
	flipped[len(fine)/2] ^= 1
	last := fine[:len(fine)-1] + string("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdef"[(int(fine[len(fine)-1])+1)%32])
	for name, token := range map[string]string{
		"empty": "", "spaces": "   ", "dots": "..", "one part": "abc", "four parts": fine + ".x",
		"flipped": string(flipped), "other tail": last, "padded": fine + "==", "newline": fine + "\n", "space": " " + fine,
		"binary": "\x00\xff.\xfe.\x80", "no object": signText("W10.W10", "HS256", testSecret),
		"null": signText("bnVsbA.bnVsbA", "HS256", testSecret),
		"long": strings.Repeat("a", MaxToken+1), "long and signed": hs256(good(object{"pad": strings.Repeat("x", MaxToken)})),
	} {
		t.Run(name, func(t *testing.T) { refused(t, v, token) })
	}
}

func TestHeaders(t *testing.T) {
	named := func(id string) Key {
		return Key{Algorithm: "HS256", File: file(t, "s", []byte(id+string(testSecret))), ID: id}
	}
	key := func(id string) []byte { return append([]byte(id), testSecret...) }
	v := verifier(t, &clock{start}, named("a"), named("b"))
	header := func(more object) object { more["alg"] = "HS256"; return more }
	accepted(t, v, sign(header(object{"kid": "a"}), good(nil), key("a")))
	accepted(t, v, sign(header(object{"kid": "b"}), good(nil), key("b")))
	accepted(t, v, sign(header(object{}), good(nil), key("b")))
	refused(t, v, sign(header(object{"kid": "a"}), good(nil), key("b")))
	refused(t, v, sign(header(object{"kid": "c"}), good(nil), key("a")))
	refused(t, v, sign(header(object{"kid": 1}), good(nil), key("a")))
	refused(t, v, sign(header(object{"kid": strings.Repeat("\n", 900)}), good(nil), key("a")))
	refused(t, v, sign(header(object{"crit": []any{"exp"}}), good(nil), key("a")))
	refused(t, v, sign(header(object{"crit": []any{}, "b64": false}), good(nil), key("a")))
	open := verifier(t, &clock{start})
	accepted(t, open, sign(header(object{"kid": "anything"}), good(nil), testSecret))
}

func TestIssuer(t *testing.T) {
	v := verifier(t, &clock{start})
	for _, iss := range []any{nil, "", "https://id.example.com/", "HTTPS://ID.EXAMPLE.COM", 7, []any{issuer}} {
		refused(t, v, hs256(good(object{"iss": iss})))
	}
}

func TestCacheForgetsExpiredTokens(t *testing.T) {
	c := &clock{start}
	v := verifier(t, c)
	token := hs256(good(object{"exp": start.Add(10 * time.Second).Unix()}))
	first := accepted(t, v, token)
	if accepted(t, v, token) != first {
		t.Error("verified twice")
	}
	c.t = start.Add(39 * time.Second)
	accepted(t, v, token)
	c.t = start.Add(40 * time.Second)
	if d := refused(t, v, token); d != "expired" {
		t.Error(d)
	}
}

func TestCacheIsBounded(t *testing.T) {
	var c cache
	keys := &keySet{}
	for i := range 5 * maxCached {
		c.put([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, keys, &Principal{Expires: start})
	}
	if n := len(c.young) + len(c.old); n > 2*maxCached {
		t.Errorf("%d entries", n)
	}
	last := 5*maxCached - 1
	if _, ok := c.get([32]byte{byte(last), byte(last >> 8), byte(last >> 16)}, keys, start.Add(-1)); !ok {
		t.Error("forgot the newest token")
	}
	if _, ok := c.get([32]byte{}, keys, start.Add(-1)); ok {
		t.Error("remembers the oldest token")
	}
}

func TestOptionsAreRequired(t *testing.T) {
	full := Options{Issuer: issuer, Audience: audience, Keys: []Key{{Algorithm: "HS256", File: file(t, "s", testSecret)}}}
	for name, change := range map[string]func(*Options){
		"issuer": func(o *Options) { o.Issuer = "" }, "audience": func(o *Options) { o.Audience = "" },
		"keys": func(o *Options) { o.Keys = nil }, "algorithm": func(o *Options) { o.Keys = []Key{{File: full.Keys[0].File}} },
		"none": func(o *Options) { o.Keys = []Key{{Algorithm: "none", File: full.Keys[0].File}} },
	} {
		o := full
		change(&o)
		if _, err := NewJWT(o); err == nil {
			t.Errorf("works without %s", name)
		}
	}
}
