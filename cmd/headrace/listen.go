package main

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// listen opens host:port or unix:/path. A socket file that a dead process left behind is replaced.
func listen(address string) (net.Listener, error) {
	path, unix := strings.CutPrefix(address, "unix:")
	if !unix {
		return net.Listen("tcp", address)
	}
	l, err := net.Listen("unix", path)
	if err == nil || !abandoned(path) {
		return l, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// abandoned tells whether path is a socket that nobody answers on.
func abandoned(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	return err != nil
}

// flightURI is the address as clients write it.
func flightURI(l net.Listener, secure bool) string {
	switch {
	case l.Addr().Network() == "unix":
		return "grpc+unix://" + l.Addr().String()
	case secure:
		return "grpc+tls://" + l.Addr().String()
	default:
		return "grpc://" + l.Addr().String()
	}
}

// certificate is a key pair from files, read again when they change: a broken new pair leaves the old one in use.
type certificate struct {
	cert, key string
	failed    func(error)

	mu      sync.Mutex
	pair    *tls.Certificate
	stamp   string
	checked time.Time
}

// recheck is how often the files are looked at.
const recheck = time.Second

// serverCredentials reads the pair, which must be good now, and follows it from then on.
func serverCredentials(cert, key string, failed func(error)) (credentials.TransportCredentials, error) {
	c := &certificate{cert: cert, key: key, failed: failed}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}), nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= recheck {
		if err := c.load(); err != nil {
			c.failed(err)
		}
	}
	return c.pair, nil
}

// load reads the files if they are not the ones already in use. It is called with the lock held, or alone.
func (c *certificate) load() error {
	c.checked = time.Now()
	stamp, err := stampOf(c.cert, c.key)
	if err != nil || stamp == c.stamp {
		return err
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.pair, c.stamp = &pair, stamp
	return nil
}

// stampOf tells versions of files apart by size and time.
func stampOf(paths ...string) (string, error) {
	var b strings.Builder
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%d %d ", info.Size(), info.ModTime().UnixNano())
	}
	return b.String(), nil
}
