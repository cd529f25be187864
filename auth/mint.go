package auth

import (
	"cmp"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Minting is what a development token says, and the key it is signed with. Real tokens come from an identity provider.
type Minting struct {
	KeyFile   string // HS256: the secret, as verifiers read it; else a PEM private key (PKCS #8, PKCS #1 or SEC 1)
	Algorithm string
	KeyID     string // header "kid"; empty: none

	Issuer, Audience, Subject, Tenant string

	TenantClaim string   // empty: "tenant"
	GrantsClaim string   // empty: "headrace"
	Grants      []string // each a pattern, or a JSON object as in the claim
	TTL         time.Duration
	Now         func() time.Time // nil: time.Now
}

// Mint signs a token that a verifier with the matching key, issuer and audience accepts. Errors match ErrKey where the
// key is the reason.
func Mint(m Minting) (string, error) {
	claims, err := m.claims()
	if err != nil {
		return "", err
	}
	if !slices.Contains(algorithms, m.Algorithm) {
		return "", fmt.Errorf("%w: algorithm %q; supported are %s", ErrKey, m.Algorithm, strings.Join(algorithms, ", "))
	}
	text, _, err := readKeyFile(m.KeyFile)
	if err != nil {
		return "", err
	}
	key, err := signingKey(m.Algorithm, text)
	if err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrKey, m.KeyFile, err)
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(m.Algorithm), claims)
	if m.KeyID != "" {
		token.Header["kid"] = m.KeyID
	}
	signed, err := token.SignedString(key)
	if err == nil && len(signed) > MaxToken {
		err = fmt.Errorf("the token would have %d bytes; verifiers refuse more than %d", len(signed), MaxToken)
	}
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return signed, nil
}

// claims checks by the verifier's own rules, so that a mistake shows here and not as a bland refusal later.
func (m Minting) claims() (jwt.MapClaims, error) {
	if m.Issuer == "" || m.Audience == "" {
		return nil, errors.New("a token needs an issuer and an audience")
	}
	if _, err := name("tenant", m.Tenant); err != nil {
		return nil, err
	}
	if m.TTL < time.Second {
		return nil, errors.New("a token must live for at least a second")
	}
	now := time.Now
	if m.Now != nil {
		now = m.Now
	}
	grants := make([]any, len(m.Grants))
	for i, text := range m.Grants {
		grants[i] = text
		if strings.HasPrefix(strings.TrimSpace(text), "{") {
			if err := json.Unmarshal([]byte(text), &grants[i]); err != nil {
				return nil, fmt.Errorf("grant %q: %w", text, err)
			}
		}
		if _, err := parseGrant(grants[i]); err != nil {
			return nil, fmt.Errorf("grant %q: %w", text, err)
		}
	}
	claims := jwt.MapClaims{
		"iss":                             m.Issuer,
		"aud":                             m.Audience,
		"iat":                             now().Unix(),
		"exp":                             now().Add(m.TTL).Unix(),
		cmp.Or(m.TenantClaim, "tenant"):   m.Tenant,
		cmp.Or(m.GrantsClaim, "headrace"): grants,
	}
	if m.Subject != "" {
		if _, err := name("sub", m.Subject); err != nil {
			return nil, err
		}
		claims["sub"] = m.Subject
	}
	return claims, nil
}

// signingKey reads what signs for an algorithm from the bytes of a file.
func signingKey(algorithm string, text []byte) (any, error) {
	if algorithm == "HS256" {
		return secret(text)
	}
	key, err := privateKey(text)
	if err != nil {
		return nil, err
	}
	return key, fits(algorithm, key.Public())
}

func privateKey(text []byte) (crypto.Signer, error) {
	block, rest := pem.Decode(text)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl puts the name of the curve in front
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, errors.New("no PEM block with a private key")
	}
	if block.Headers["DEK-Info"] != "" || block.Type == "ENCRYPTED PRIVATE KEY" {
		return nil, errors.New("an encrypted private key; decrypt it first")
	}
	var key any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("a PEM block %.40q, not a private key", block.Type)
	}
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("a private key that cannot sign")
	}
	return signer, nil
}
