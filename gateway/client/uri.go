package client

import (
	"errors"
	"fmt"
	"net"
	"path"
	"strings"
)

// ErrURI says that a gateway's address is not one.
var ErrURI = errors.New("bad gateway address")

// address is a URI as gRPC wants it.
type address struct {
	target string
	tls    bool
}

func parseURI(uri string) (address, error) {
	scheme, rest, _ := strings.Cut(uri, "://")
	switch scheme {
	case "grpc", "grpc+tls":
		host, port, err := net.SplitHostPort(strings.TrimSuffix(rest, "/"))
		if err == nil && host != "" && port != "" {
			return address{target: net.JoinHostPort(host, port), tls: scheme == "grpc+tls"}, nil
		}
	case "grpc+unix":
		if path.IsAbs(rest) {
			return address{target: "unix://" + rest}, nil
		}
	}
	return address{}, fmt.Errorf("%w: %q: want grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH", ErrURI, uri)
}
