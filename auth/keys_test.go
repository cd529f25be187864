package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestKeyFiles(t *testing.T) {
	rs, es := pairs()["RS256"], pairs()["ES256"]
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	weak := must(rsa.GenerateKey(rand.Reader, 1024))
	sec1 := block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(es.private.(*ecdsa.PrivateKey))))
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rs.private.(*rsa.PrivateKey)))
	for _, c := range []struct {
		name, algorithm string
		text            []byte
		want            string // "" works
	}{
		{"secret", "HS256", testSecret, ""},
		{"secret with newline", "HS256", append(slices.Clone(testSecret), '\n'), ""},
		{"short secret", "HS256", testSecret[:31], "at least 32"},
		{"short but for newlines", "HS256", append(slices.Clone(testSecret[:30]), '\n', '\n'), "at least 32"},
		{"empty", "HS256", nil, "at least 32"},
		{"public key", "RS256", publicPEM(rs.public), ""},
		{"text before the block", "RS256", append([]byte("our key\n"), publicPEM(rs.public)...), ""},
		{"private PKCS #8", "RS256", privatePEM(rs.private), "private key"},
		{"private PKCS #1", "RS256", pkcs1, "private key"},
		{"private SEC 1", "ES256", sec1, "private key"},
		{"certificate, then its key", "RS256", append(certificatePEM(rs), pkcs1...), "private key"},
		{"two keys", "RS256", append(publicPEM(rs.public), publicPEM(rs.public)...), "2 PEM blocks"},
		{"bare PKCS #1", "RS256", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(rs.public.(*rsa.PublicKey))), "RSA PUBLIC KEY"},
		{"weak RSA", "RS256", publicPEM(&weak.PublicKey), "1024 bits"},
		{"another curve", "ES256", publicPEM(&p384.PublicKey), "wrong kind"},
		{"another kind", "EdDSA", publicPEM(es.public), "wrong kind"},
		{"RSA for ES256", "ES256", publicPEM(rs.public), "wrong kind"},
		{"a secret for RS256", "RS256", testSecret, "0 PEM blocks"},
		{"damaged", "ES256", block("PUBLIC KEY", []byte{0x30, 1}), "asn1"},
		{"damaged certificate", "ES256", block("CERTIFICATE", []byte{0x30, 1}), "x509"},
		{"large", "HS256", make([]byte, maxKeyFile+1), "at most"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := file(t, "key", c.text)
			_, err := NewJWT(Options{Issuer: issuer, Audience: audience, Keys: []Key{{Algorithm: c.algorithm, File: path}}})
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, ErrKey) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)):
				t.Errorf("error %v, want %q and the file", err, c.want)
			}
		})
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := NewJWT(Options{Issuer: issuer, Audience: audience, Keys: []Key{{Algorithm: "HS256", File: path}}}); !errors.Is(err, ErrKey) {
			t.Error(err)
		}
	}
}

func TestMintReadsEveryPrivateKeyForm(t *testing.T) {
	rs, es := pairs()["RS256"].private.(*rsa.PrivateKey), pairs()["ES256"].private.(*ecdsa.PrivateKey)
	sec1 := block("EC PRIVATE KEY", must(x509.MarshalECPrivateKey(es)))
	for _, c := range []struct {
		algorithm string
		text      []byte
	}{
		{"RS256", privatePEM(rs)},
		{"RS256", block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rs))},
		{"ES256", privatePEM(es)},
		{"ES256", sec1},
		{"ES256", append(block("EC PARAMETERS", []byte{6, 0}), sec1...)},
	} {
		token, err := Mint(Minting{
			KeyFile: file(t, "key", c.text), Algorithm: c.algorithm, Issuer: issuer, Audience: audience,
			Tenant: "t", TTL: time.Hour, Now: func() time.Time { return start },
		})
		if err != nil {
			t.Fatal(err)
		}
		accepted(t, verifier(t, &clock{start}, Key{Algorithm: c.algorithm, File: file(t, "p", publicPEM(pairs()[c.algorithm].public))}), token)
	}
}

// events writes down what key files did.
func events(log *[]string) Events {
	return Events{
		KeyLoaded:  func(string) { *log = append(*log, "loaded") },
		KeyRefused: func(_ string, err error) { *log = append(*log, "refused: "+err.Error()) },
	}
}

func TestKeyFilesReload(t *testing.T) {
	c, log := &clock{start}, []string(nil)
	path := file(t, "secret", testSecret)
	v, err := NewJWT(Options{Issuer: issuer, Audience: audience, Keys: []Key{{Algorithm: "HS256", File: path}}, Events: events(&log), Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	other := []byte("ANOTHER SECRET OF THE SAME LENGTH")[:32]
	header := object{"alg": "HS256"}
	before, after := sign(header, good(nil), testSecret), sign(header, good(nil), other)
	replace := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	tick := func() { c.t = c.t.Add(time.Second) }

	accepted(t, v, before)
	replace(other)
	accepted(t, v, before) // not looked at yet: less than a second
	refused(t, v, after)
	tick()
	accepted(t, v, after)
	refused(t, v, before) // the cache forgot what the old key vouched for

	replace(other[:9])
	tick()
	accepted(t, v, after)
	tick()
	accepted(t, v, after)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	tick()
	accepted(t, v, after)
	tick()
	accepted(t, v, after)
	replace(testSecret)
	tick()
	accepted(t, v, before)
	refused(t, v, after)

	want := []string{"loaded", "refused: unusable key: " + path + ": a secret of 9 bytes", "refused: unusable key: stat " + path, "loaded"}
	if len(log) != len(want) {
		t.Fatalf("events %q", log)
	}
	for i := range want {
		if !strings.HasPrefix(log[i], want[i]) {
			t.Errorf("event %d: %q, want %q", i, log[i], want[i])
		}
	}
}

// Many callers at once, each of whom finds a second gone and one of whom keeps touching the file.
func TestReloadUnderLoad(t *testing.T) {
	path := file(t, "secret", testSecret)
	tokens := []string{hs256(good(nil)), hs256(good(object{"sub": "other"}))}
	v := verifier(t, &clock{start}, Key{Algorithm: "HS256", File: path})
	var seconds atomic.Int64
	v.ring.now = func() time.Time { return start.Add(time.Duration(seconds.Add(1)) * time.Second) }
	for worker := range 4 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for i := range 300 {
				accepted(t, v, tokens[i%2])
				if worker == 0 && i%10 == 0 {
					if err := os.Chtimes(path, start, start.Add(time.Duration(i)*time.Hour)); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
