package gateway

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/headrace/headrace/auth"
)

// identify finds out who calls. It runs as gRPC's tap, on a call's headers: interceptors of unary calls come only after
// the message has been received and parsed, and a stranger's bytes are not to be parsed. Every method passes here, known
// or not, health included.
func (s *Server) identify(ctx context.Context, call *tap.Info) (context.Context, error) {
	p, err := s.Verifier.Verify(ctx, bearer(call.Header.Get("authorization")))
	if err != nil {
		s.Events.Refused(ctx, call.FullMethodName, auth.Detail(err))
		return ctx, status.Error(codes.Unauthenticated, err.Error())
	}
	return context.WithValue(ctx, principalKey{}, p), nil
}

type principalKey struct{}

// principal is who makes the call; nil for nobody.
func principal(ctx context.Context) *auth.Principal {
	p, _ := ctx.Value(principalKey{}).(*auth.Principal)
	return p
}

// Tenant is for whom the call is made that a context belongs to; empty for nobody.
func Tenant(ctx context.Context) string {
	if p := principal(ctx); p != nil {
		return p.Tenant
	}
	return ""
}

// bearer takes the token out of an authorization header: exactly one header, the scheme in any case.
func bearer(headers []string) string {
	if len(headers) != 1 {
		return ""
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// guardUnary refuses whatever came round the tap, turns errors into statuses, and survives a panic.
func (s *Server) guardUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.status(ctx, panicked(r))
		}
	}()
	if principal(ctx) == nil {
		return nil, status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	}
	resp, err = next(ctx, req)
	return resp, s.status(ctx, err)
}

// guardStream is guardUnary for streams.
func (s *Server) guardStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	defer func() {
		if r := recover(); r != nil {
			err = s.status(ctx, panicked(r))
		}
	}()
	if principal(ctx) == nil {
		return status.Error(codes.Unauthenticated, auth.ErrUnauthenticated.Error())
	}
	return s.status(ctx, next(srv, stream))
}

func panicked(r any) error { return fmt.Errorf("panic: %v\n%s", r, debug.Stack()) }

// unknownMethod answers methods and services that do not exist, once the caller is known.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented, "unknown method %q", method)
}
