package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrKey is a key file that cannot be used.
var ErrKey = errors.New("unusable key")

// Algorithms are the signatures that keys can be made for.
var algorithms = []string{"HS256", "RS256", "ES256", "EdDSA"}

const (
	minSecret  = 32       // bytes; an HMAC-SHA-256 secret shorter than its hash can be guessed
	minRSA     = 2048     // bits
	maxKeyFile = 64 << 10 // bytes
)

// Key is a file that tokens may be verified with, for one algorithm.
type Key struct {
	Algorithm string // HS256, RS256, ES256 or EdDSA
	// File holds, for HS256, the secret: its bytes less one final newline. For the others it is one PEM block: a public
	// key (PKIX) or a certificate, of which only the key counts, not its dates.
	File string
	ID   string // "kid" of the tokens; empty: tokens with any kid or none
}

// readKeyFile reads a small regular file, and the facts of the very file it read.
func readKeyFile(path string) ([]byte, os.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxKeyFile {
		return nil, nil, fmt.Errorf("%w: %s: not a regular file of at most %d bytes", ErrKey, path, maxKeyFile)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrKey, err)
	}
	return text, info, nil
}

// publicKey reads what verifies signatures of an algorithm from the bytes of a file.
func publicKey(algorithm string, text []byte) (any, error) {
	if algorithm == "HS256" {
		return secret(text)
	}
	block, err := onlyBlock(text)
	if err != nil {
		return nil, err
	}
	var key any
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = c.PublicKey
		}
	default:
		return nil, fmt.Errorf("a PEM block %.40q; a PUBLIC KEY or a CERTIFICATE is needed", block.Type)
	}
	if err != nil {
		return nil, err
	}
	return key, fits(algorithm, key)
}

// onlyBlock returns the one PEM block of a file. Private keys are refused by name, wherever they stand in it: a gateway
// that holds one could be robbed of it.
func onlyBlock(text []byte) (*pem.Block, error) {
	var first *pem.Block
	count := 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if strings.Contains(block.Type, "PRIVATE KEY") {
			return nil, errors.New("holds a private key; the gateway needs only the public one, take the private key away")
		}
		if count++; count == 1 {
			first = block
		}
	}
	if count != 1 {
		return nil, fmt.Errorf("%d PEM blocks, expected one with a public key or a certificate", count)
	}
	return first, nil
}

// fits checks that a public key is of the kind and strength that an algorithm needs.
func fits(algorithm string, key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits < minRSA {
			return fmt.Errorf("an RSA key of %d bits, at least %d are needed", bits, minRSA)
		}
		if algorithm == "RS256" {
			return nil
		}
	case *ecdsa.PublicKey:
		if algorithm == "ES256" && k.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		if algorithm == "EdDSA" {
			return nil
		}
	}
	return fmt.Errorf("a key of the wrong kind for %s", algorithm)
}

// secret reads an HMAC secret. Public keys are refused: everybody may know them, so everybody could sign with them.
func secret(text []byte) ([]byte, error) {
	key := bytes.TrimSuffix(text, []byte("\n"))
	if len(key) < minSecret {
		return nil, fmt.Errorf("a secret of %d bytes, at least %d are needed", len(key), minSecret)
	}
	var jwk struct {
		Kind string `json:"kty"`
	}
	if bytes.Contains(key, []byte("-----BEGIN ")) || json.Unmarshal(key, &jwk) == nil && jwk.Kind != "" {
		return nil, errors.New("a PEM or JWK key, not an HS256 secret")
	}
	return key, nil
}
