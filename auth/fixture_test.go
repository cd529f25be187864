package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer   = "https://id.example.com"
	audience = "headrace"
)

// start is the time of all tests: nothing here waits for a clock.
var start = time.Unix(1_800_000_000, 0)

// clock is a time that tests move.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

type pair struct {
	private any
	public  any
}

// pairs makes one key of each kind, once for all tests: RSA keys take a while.
var pairs = sync.OnceValue(func() map[string]pair {
	r := must(rsa.GenerateKey(rand.Reader, 2048))
	e := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return map[string]pair{"RS256": {r, &r.PublicKey}, "ES256": {e, &e.PublicKey}, "EdDSA": {private, public}}
})

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func publicPEM(public any) []byte {
	return block("PUBLIC KEY", must(x509.MarshalPKIXPublicKey(public)))
}

func privatePEM(private any) []byte {
	return block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(private)))
}

func certificatePEM(p pair) []byte {
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: start.Add(time.Hour)}
	return block("CERTIFICATE", must(x509.CreateCertificate(rand.Reader, c, c, p.public, p.private)))
}

var testSecret = []byte("0123456789abcdef0123456789abcdef")

func file(t testing.TB, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// verifier is a JWT verifier with one HS256 key, or with the keys given.
func verifier(t testing.TB, c *clock, keys ...Key) *JWT {
	t.Helper()
	if keys == nil {
		keys = []Key{{Algorithm: "HS256", File: file(t, "secret", testSecret)}}
	}
	v, err := NewJWT(Options{Issuer: issuer, Audience: audience, Keys: keys, Skew: 30 * time.Second, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

type object = map[string]any

// good is a set of claims that passes; the changes replace claims, nil removes them.
func good(changes object) object {
	claims := object{
		"iss": issuer, "aud": audience, "exp": start.Add(time.Hour).Unix(),
		"sub": "job-7", "tenant": "vision", "headrace": []any{"imagenet/**"},
	}
	for k, v := range changes {
		if v == nil {
			delete(claims, k)
		} else {
			claims[k] = v
		}
	}
	return claims
}

// sign makes a token out of anything, right or wrong.
func sign(header object, claims any, key any) string {
	encode := func(v any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(v))) }
	text := encode(header) + "." + encode(claims)
	return signText(text, header["alg"].(string), key)
}

func signText(text, algorithm string, key any) string {
	signature := must(jwt.GetSigningMethod(algorithm).Sign(text, key))
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

func hs256(claims any) string { return sign(object{"alg": "HS256", "typ": "JWT"}, claims, testSecret) }
