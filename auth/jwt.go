package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// MaxToken is the longest token that is looked at, in bytes. Longer ones are refused before they are parsed.
const MaxToken = 16 << 10

// Options say which tokens to believe.
type Options struct {
	Issuer   string // required "iss"
	Audience string // required in "aud", a string or a list
	Keys     []Key  // at least one; a token needs one of them to fit
	// TenantClaim and GrantsClaim name the claims with the tenant and the grants. A name is looked up as it stands
	// first; if there is no such claim, its dots lead into nested objects. Empty: "tenant" and "headrace".
	TenantClaim string
	GrantsClaim string
	Skew        time.Duration    // how far clocks may differ, for exp, nbf and iat
	Events      Events           // what operators want to hear of
	Now         func() time.Time // nil: time.Now
}

// Events tell what happens to key files after the start. Functions left nil are not called.
type Events struct {
	KeyLoaded  func(file string)            // a changed file holds a good key, used from now on
	KeyRefused func(file string, err error) // a changed file is no good; the key read before stays in use
}

// JWT verifies signed tokens with keys from files.
type JWT struct {
	options Options
	parser  *jwt.Parser
	ring    *ring
	cache   cache
}

// NewJWT reads the keys. Errors about a key match ErrKey and name its file and the reason.
func NewJWT(o Options) (*JWT, error) {
	if o.Issuer == "" || o.Audience == "" || len(o.Keys) == 0 {
		return nil, errors.New("verifying tokens takes an issuer, an audience and at least one key")
	}
	if o.TenantClaim == "" {
		o.TenantClaim = "tenant"
	}
	if o.GrantsClaim == "" {
		o.GrantsClaim = "headrace"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	ring, err := newRing(o.Keys, o.Events, o.Now)
	if err != nil {
		return nil, err
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(ring.algorithms()),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithIssuedAt(),
		jwt.WithLeeway(o.Skew),
		jwt.WithTimeFunc(o.Now),
		jwt.WithStrictDecoding(),
	)
	return &JWT{options: o, parser: parser, ring: ring}, nil
}

// Verify checks signature, issuer, audience and times, and reads tenant and grants. A token that passed is remembered
// until it expires or a key file changes, so that a stream of calls pays for one signature check.
func (v *JWT) Verify(_ context.Context, token string) (*Principal, error) {
	switch {
	case token == "":
		return nil, &refusal{"no token"}
	case len(token) > MaxToken:
		return nil, &refusal{fmt.Sprintf("token of %d bytes, at most %d are allowed", len(token), MaxToken)}
	}
	if strings.ContainsAny(token, "\r\n") { // base64 decoders skip them: one token would have many spellings
		return nil, &refusal{"malformed token"}
	}
	keys, sum := v.ring.current(), sha256.Sum256([]byte(token))
	if p, ok := v.cache.get(sum, keys, v.options.Now().Add(-v.options.Skew)); ok {
		return p, nil
	}
	parsed, err := v.parser.Parse(token, keys.choose)
	if err != nil {
		return nil, &refusal{cause(err)}
	}
	p, err := v.principal(parsed.Claims.(jwt.MapClaims))
	if err != nil {
		return nil, &refusal{err.Error()}
	}
	v.cache.put(sum, keys, p)
	return p, nil
}

// choose returns the keys a token may be signed with: those made for its algorithm and, where both name one, its key id.
// A key serves one algorithm only, so a public key can never be taken for an HMAC secret.
func (s *keySet) choose(t *jwt.Token) (any, error) {
	if _, ok := t.Header["crit"]; ok {
		return nil, &refusal{"header `crit` asks for an extension; none is known"}
	}
	kid, named := t.Header["kid"]
	id, isText := kid.(string)
	if named && !isText {
		return nil, &refusal{"header `kid` is not a string"}
	}
	var fit jwt.VerificationKeySet
	for _, k := range s.keys {
		if k.Algorithm == t.Method.Alg() && (!named || k.ID == "" || k.ID == id) {
			fit.Keys = append(fit.Keys, k.public)
		}
	}
	if len(fit.Keys) == 0 {
		return nil, &refusal{fmt.Sprintf("no key for algorithm %s and key id %.64q", t.Method.Alg(), id)}
	}
	return fit, nil
}

// causes are fixed texts, so that nothing a stranger wrote into a token gets into the log by way of a parser's message.
var causes = []struct {
	err  error
	text string
}{
	{jwt.ErrTokenMalformed, "malformed token"},
	{jwt.ErrTokenUnverifiable, "unknown algorithm"},
	{jwt.ErrTokenSignatureInvalid, "signature or algorithm does not fit any key"},
	{jwt.ErrTokenRequiredClaimMissing, "exp, iss or aud is missing"},
	{jwt.ErrTokenExpired, "expired"},
	{jwt.ErrTokenNotValidYet, "not valid yet (nbf)"},
	{jwt.ErrTokenUsedBeforeIssued, "issued in the future (iat)"},
	{jwt.ErrTokenInvalidIssuer, "another issuer"},
	{jwt.ErrTokenInvalidAudience, "another audience"},
	{jwt.ErrInvalidType, "a registered claim has the wrong type"},
}

func cause(err error) string {
	var own *refusal
	if errors.As(err, &own) {
		return own.detail
	}
	for _, c := range causes {
		if errors.Is(err, c.err) {
			return c.text
		}
	}
	return "invalid token"
}
