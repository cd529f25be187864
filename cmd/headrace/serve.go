package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/bucket"
)

// serveFlags are the flags of serve that set a key of the config, and that key.
var serveFlags = []struct{ flag, key, about string }{
	{"listen", "listen", "where Flight clients connect: HOST:PORT, or unix:/PATH"},
	{"admin", "admin", "where /healthz, /readyz and /metrics are: HOST:PORT"},
	{"memory", "memory", "the memory limit, such as 8GiB"},
	{"auth", "auth.mode", "jwt or none"},
	{"issuer", "auth.issuer", "the issuer that tokens must name"},
	{"audience", "auth.audience", "the audience that tokens must name"},
	{"tls-cert", "tls.cert", "certificate file (PEM)"},
	{"tls-key", "tls.key", "private key file (PEM)"},
}

// serveOptions is the command line of serve.
type serveOptions struct {
	config    string
	values    map[string]*string
	keys      []string
	algorithm string
	insecure  bool
}

func serveCommand() *cobra.Command {
	o := serveOptions{values: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "serve [FOLDER | URL | --config FILE]",
		Short: "Serve a folder or a bucket of data sets, or what a config names, over Arrow Flight",
		Long: "Serve a folder or a bucket of data sets, or what a config names, over Arrow Flight. A bucket's URL is s3://BUCKET/PREFIX,\n" +
			"gs://BUCKET/PREFIX or azblob://CONTAINER/PREFIX, with parameters such as ?region= and ?endpoint=.\n\n" +
			"Without a config, everybody on this machine may read everything, on loopback only; --auth jwt with --key,\n" +
			"--issuer and --audience asks for tokens.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, all, err := o.load(cmd, args)
			if err != nil {
				return err
			}
			follow := func(context.Context, *app) error { return nil }
			if o.config != "" {
				follow = func(ctx context.Context, a *app) error {
					return a.follow(ctx, o.config, *cfg, func() (*configs.Config, error) {
						next, _, err := o.load(cmd, args)
						return next, err
					})
				}
			}
			return serve(cmd.Context(), cfg, all, follow, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.config, "config", "", "config file (YAML); 'headrace config check --explain' tells its keys")
	for _, s := range serveFlags {
		o.values[s.key] = f.String(s.flag, "", s.about)
	}
	f.StringArrayVar(&o.keys, "key", nil, "file of a key that tokens are verified with; repeatable")
	f.StringVar(&o.algorithm, "algorithm", "", "algorithm of the keys: HS256, RS256, ES256 or EdDSA")
	f.BoolVar(&o.insecure, "insecure", false, "allow plaintext, or no tokens, off loopback")
	return cmd
}

// load turns the command line into a config and mounts.
func (o *serveOptions) load(cmd *cobra.Command, args []string) (*configs.Config, []storage.Mount, error) {
	if (o.config == "") == (len(args) == 0) {
		return nil, nil, usagef("name a FOLDER or the URL of a bucket to serve, or a --config FILE: one of the two")
	}
	source := configs.Source{File: o.config, Environ: os.Environ(), Flags: map[string]string{}, Names: map[string]string{
		"insecure": "--insecure", "auth.keys": "--key", "auth.keys[].file": "--key", "auth.keys[].algorithm": "--algorithm",
	}}
	for _, s := range serveFlags {
		source.Names[s.key] = "--" + s.flag
		if cmd.Flags().Changed(s.flag) {
			source.Flags[s.key] = *o.values[s.key]
		}
	}
	if cmd.Flags().Changed("insecure") {
		source.Flags["insecure"] = fmt.Sprint(o.insecure)
	}
	if (len(o.keys) > 0) != (o.algorithm != "") {
		return nil, nil, usagef("--key and --algorithm belong together")
	}
	for _, file := range o.keys {
		source.Keys = append(source.Keys, configs.Key{Algorithm: o.algorithm, File: file})
	}
	cfg, err := configs.Load(source)
	if err != nil {
		return nil, nil, usageError{err}
	}
	all, err := mounts(cfg)
	if err != nil {
		return nil, nil, err
	}
	if len(args) == 1 {
		if all, err = tree(args[0]); err != nil {
			return nil, nil, err
		}
	}
	return cfg, all, nil
}

// tree is all that lies below a folder, or in a bucket.
func tree(place string) ([]storage.Mount, error) {
	if err := bucket.Check(place); err != nil {
		return nil, usageError{err}
	}
	return []storage.Mount{{URL: place, Tree: true}}, nil
}

// serve runs a gateway until ctx ends, then drains it. Meanwhile, follow sees to what changes.
func serve(ctx context.Context, cfg *configs.Config, all []storage.Mount, follow func(context.Context, *app) error, out, errOut io.Writer) error {
	log := newLog(errOut, cfg.Telemetry.Log)
	paceHeap(heapShare(cfg.Memory))
	a, err := newApp(ctx, cfg, all, log, verifierOf(cfg.Auth))
	if err != nil {
		return err
	}
	defer a.close()
	flightPort, err := listen(cfg.Listen)
	if err != nil {
		return fmt.Errorf("%w\n--listen chooses another address", err)
	}
	adminPort, err := net.Listen("tcp", cfg.Admin)
	if err != nil {
		flightPort.Close()
		return fmt.Errorf("admin: %w\n--admin chooses another address; port 0 picks a free one", err)
	}
	adm := newAdmin(a.tel.handler(), log)

	group, serving := errgroup.WithContext(ctx)
	group.Go(func() error { return ignoreStopped(a.gateway.Serve(flightPort)) })
	group.Go(func() error { return adm.serve(adminPort) })
	group.Go(func() error { return follow(serving, a) })
	group.Go(func() error {
		<-serving.Done()
		drain, cancel := context.WithTimeout(context.Background(), cfg.Limits.DrainTimeout)
		defer cancel()
		adm.ready.Store(false)
		log.Info("draining", "timeout", cfg.Limits.DrainTimeout.String())
		a.gateway.Drain(drain)
		a.gateway.Close()
		adm.close(drain)
		return nil
	})
	adm.ready.Store(true)
	announce(out, flightURI(flightPort, cfg.TLS.Cert != ""), "http://"+adminPort.Addr().String())
	a.greet(ctx, out)
	return group.Wait()
}

func ignoreStopped(err error) error {
	if errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

// announce prints the two lines that scripts wait for.
func announce(out io.Writer, flight, admin string) {
	fmt.Fprintf(out, "listening %s\nadmin %s\n", flight, admin)
	if watched(out) != nil {
		fmt.Fprint(out, "\n"+snippet(flight, "DATASET", ""))
	}
}

// greet says what there is to read, so that a mistake in the folder shows at once.
func (a *app) greet(ctx context.Context, _ io.Writer) {
	names, err := a.store.Datasets(ctx)
	switch {
	case ctx.Err() != nil: // it ends before it knows
	case err != nil:
		a.log.Error("listing datasets", "error", err.Error())
	case len(names) == 0:
		a.log.Warn("no datasets: the folder or bucket has no data files (*.parquet, *.arrow, ...); they are served as soon as they are there")
	default:
		a.log.Info("serving", "datasets", len(names), "first", slices.Clone(names[:min(len(names), 10)]))
	}
}

// watched returns the output if it is a terminal, where a person reads it, else nil.
func watched(out io.Writer) io.Writer {
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return out
		}
	}
	return nil
}

// snippet is a program to paste that reads a dataset with stock pyarrow.
func snippet(uri, dataset, tokenFile string) string {
	var b strings.Builder
	b.WriteString("import json, pyarrow.flight as fl\n\n")
	options := ""
	if tokenFile != "" {
		fmt.Fprintf(&b, "token = open(%q).read().strip()\n", tokenFile)
		b.WriteString("options = fl.FlightCallOptions(headers=[(b\"authorization\", b\"Bearer \" + token.encode())])\n")
		options = ", options"
	}
	fmt.Fprintf(&b, "client = fl.connect(%q)\n", uri)
	fmt.Fprintf(&b, "request = {\"dataset\": %q, \"batch_size\": 1024}\n", dataset)
	fmt.Fprintf(&b, "info = client.get_flight_info(fl.FlightDescriptor.for_command(json.dumps(request))%s)\n", options)
	fmt.Fprintf(&b, "for chunk in client.do_get(info.endpoints[0].ticket%s):\n", options)
	b.WriteString("    batch, meta = chunk.data, json.loads(chunk.app_metadata.to_pybytes())\n")
	b.WriteString("    print(batch.num_rows, \"rows; go on from here after a crash:\", meta[\"cursor\"])\n")
	return b.String()
}
