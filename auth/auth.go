// Package auth says who is asking and what they may read; it has never heard of gRPC.
//
// A Verifier turns a bearer token into a Principal; a Policy turns a Principal and a dataset into the columns that may be
// read. Both are interfaces because where tokens and rights come from differs between sites (a signed token, a client
// certificate, a policy file), and the gateway must not care.
package auth

import (
	"context"
	"errors"
	"time"
)

// ErrUnauthenticated is the one answer to a missing, malformed, forged, expired or foreign token. Its text is all that
// callers may see; Detail has the cause for the log.
var ErrUnauthenticated = errors.New("unauthenticated: a valid bearer token is required")

// Principal is who asks, for which tenant, with which grants. It is shared between requests: never change one.
type Principal struct {
	Subject string    // the token's "sub", possibly empty
	Tenant  string    // never empty
	Grants  []Grant   // none: nothing may be read
	Expires time.Time // zero: never
}

// Grant allows reading the datasets that match a pattern.
type Grant struct {
	Datasets Pattern
	Columns  []string // top-level column names; nil means all of them
}

// Verifier finds out who holds a token. Errors match ErrUnauthenticated.
type Verifier interface {
	Verify(ctx context.Context, token string) (*Principal, error)
}

// Policy says which columns of a dataset a principal may read. False means that it may not know that the dataset exists.
type Policy interface {
	Columns(p *Principal, dataset string) (Columns, bool)
}

// refusal carries the cause of a refused token without ever printing it to the caller.
type refusal struct{ detail string }

func (r *refusal) Error() string        { return ErrUnauthenticated.Error() }
func (r *refusal) Is(target error) bool { return target == ErrUnauthenticated }

// Detail is the cause behind an ErrUnauthenticated, for the log of the operator; for other errors it is their text.
// It never contains the token.
func Detail(err error) string {
	var r *refusal
	if errors.As(err, &r) {
		return r.detail
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// None is the verifier of mode none: whoever asks is tenant "local" and may read everything.
type None struct{}

// Verify accepts any token, and none.
func (None) Verify(context.Context, string) (*Principal, error) {
	return &Principal{Subject: "local", Tenant: "local", Grants: []Grant{{Datasets: everything()}}}, nil
}
