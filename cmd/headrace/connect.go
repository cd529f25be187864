package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/gateway/client"
	"github.com/headrace/headrace/storage"
)

// defaultServer is where serve listens when nothing else is said.
const defaultServer = "grpc://127.0.0.1:8815"

// target is which data a reading command looks at: a running gateway's, or what a config or a folder names, read in the
// command's own process.
type target struct {
	server, token, ca, config, folder string
	memory                            int64 // of a gateway in process; 0: what the config says
	disk                              int64 // that the config of one in process would give to blocks
}

// remote are the flags of commands about what a running gateway does; one in process would have nothing to tell.
func (t *target) remote(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.server, "server", defaultServer, "a running gateway: grpc://HOST:PORT, grpc+tls://HOST:PORT or grpc+unix:///PATH")
	f.StringVar(&t.token, "token", "", "the token, or @FILE that holds it")
	f.StringVar(&t.ca, "tls-ca", "", "a file of certificates (PEM) to trust instead of the system's")
}

// flags are those of commands about data, which can be read in process as well.
func (t *target) flags(cmd *cobra.Command) {
	t.remote(cmd)
	f := cmd.Flags()
	f.StringVar(&t.config, "config", "", "read what this config names, in process, as an operator who may see everything")
	f.StringVar(&t.folder, "folder", "", "read this folder, or this bucket such as s3://BUCKET/PREFIX, in process")
	cmd.MarkFlagsMutuallyExclusive("server", "config", "folder")
	cmd.MarkFlagsMutuallyExclusive("token", "config", "folder")
	cmd.MarkFlagsMutuallyExclusive("tls-ca", "config", "folder")
}

// with calls f with a client of the target.
func (t *target) with(ctx context.Context, f func(context.Context, *client.Client) error) error {
	if t.config == "" && t.folder == "" {
		return t.dial(ctx, t.server, f)
	}
	cfg, all, err := t.local()
	if err != nil {
		return err
	}
	if t.memory > 0 {
		cfg.Memory = t.memory
	}
	return t.inProcess(ctx, cfg, all, f)
}

// give sets the memory of a gateway in process; text may be empty.
func (t *target) give(text string) (err error) {
	if text == "" {
		return nil
	}
	if t.config == "" && t.folder == "" {
		return usagef("--memory is of a gateway in process: --folder or --config makes one; a running gateway has what its own config says")
	}
	t.memory, _, err = memoryOf(text)
	return err
}

// memoryOf is the value of --memory, and what of it is for streams.
func memoryOf(text string) (memory, limit int64, err error) {
	if memory, err = configs.ParseSize(text); err == nil {
		_, limit, err = shares(memory)
	}
	if err != nil {
		return 0, 0, usagef("--memory: %w", err)
	}
	return memory, limit, nil
}

// local is the config and the mounts of a reading command's own process.
func (t *target) local() (*configs.Config, []storage.Mount, error) {
	source := configs.Source{File: t.config}
	if t.config != "" {
		source.Environ = os.Environ()
	}
	cfg, err := configs.Load(source)
	if err != nil {
		return nil, nil, usageError{err}
	}
	if t.folder != "" {
		all, err := tree(t.folder)
		return cfg, all, err
	}
	all, err := mounts(cfg)
	return cfg, all, err
}

// inProcess runs a whole gateway behind a socket that only this user can reach: the same way as over the network, so
// that both show the same.
func (t *target) inProcess(ctx context.Context, cfg *configs.Config, all []storage.Mount, f func(context.Context, *client.Client) error) (err error) {
	dir, err := os.MkdirTemp("", "headrace-") // only its owner may enter it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	// What is kept on disk is a gateway's that may be running; this one ends at once.
	t.disk = cfg.Cache.DiskLimit
	cfg.TLS, cfg.Telemetry.OTLP, cfg.Cache.DiskLimit = configs.TLS{}, "", 0
	a, err := newApp(ctx, cfg, all, newLog(os.Stderr, "error"), anybody)
	if err != nil {
		return err
	}
	defer a.close()
	port, err := listen("unix:" + filepath.Join(dir, "flight.sock"))
	if err != nil {
		return err
	}
	var serving errgroup.Group
	serving.Go(func() error { return ignoreStopped(a.gateway.Serve(port)) })
	err = t.dial(ctx, flightURI(port, false), f)
	a.gateway.Close()
	return errors.Join(err, serving.Wait())
}

func (t *target) dial(ctx context.Context, uri string, f func(context.Context, *client.Client) error) (err error) {
	var o client.Options
	if t.token != "" {
		if _, err := t.readToken(ctx); err != nil {
			return usageError{err}
		}
		o.Token = t.readToken
	}
	if o.TLS, err = t.trust(uri); err != nil {
		return usageError{err}
	}
	c, err := client.Dial(uri, o)
	if err != nil {
		return usageError{err}
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	return t.plain(uri, f(ctx, c))
}

// answered is what a gateway said, without gRPC's words around it.
func answered(err error) string {
	if said := statusIn(err); said != nil {
		return said.Message()
	}
	return err.Error()
}

// statusIn is a gateway's answer below an error; nil: it comes from somewhere else.
func statusIn(err error) *status.Status {
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return nil
	}
	return answer.GRPCStatus()
}

// plain says what a gateway answered without gRPC's words around it, and what to do about it.
func (t *target) plain(uri string, err error) error {
	said := statusIn(err)
	if said == nil {
		return err
	}
	switch {
	case said.Code() == codes.Unauthenticated && t.token == "":
		return fmt.Errorf("%s: pass it with --token @FILE", said.Message())
	case said.Code() == codes.Unauthenticated:
		return fmt.Errorf("%s: the gateway's log says what is wrong with this one", said.Message())
	case said.Code() == codes.Unavailable:
		return fmt.Errorf("%s: %s\n%s", uri, said.Message(), unreachable(said.Message()))
	default:
		return errors.New(said.Message())
	}
}

// unreachable is what to do about a gateway that did not answer.
func unreachable(said string) string {
	switch {
	case strings.Contains(said, "first record does not look like a TLS handshake"):
		return "it speaks plaintext: --server grpc://HOST:PORT"
	case strings.Contains(said, "x509: "):
		return "--tls-ca names a file of the certificates to trust"
	case strings.Contains(said, "error reading server preface"):
		return "it may be reached with TLS only: --server grpc+tls://HOST:PORT"
	default:
		return "--server names another gateway; --folder reads without one"
	}
}

// readToken gives the token itself, or what its file holds now.
func (t *target) readToken(context.Context) (string, error) {
	file, ok := strings.CutPrefix(t.token, "@")
	if !ok {
		return t.token, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--token: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// trust is what --tls-ca says of the gateway's certificate; nil: the system's roots.
func (t *target) trust(uri string) (*tls.Config, error) {
	if t.ca == "" {
		return nil, nil
	}
	if !strings.HasPrefix(uri, "grpc+tls://") {
		return nil, fmt.Errorf("--tls-ca: %s is reached without TLS; --server grpc+tls://HOST:PORT is with it", uri)
	}
	pem, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no certificate in PEM", t.ca)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}
