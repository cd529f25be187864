package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/configs"
	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/gateway/shm"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/disk"
	"github.com/headrace/headrace/storage/frame"
)

// app is a gateway with all its parts, ready to serve.
type app struct {
	log     *slog.Logger
	tel     *telemetry
	pool    *frame.Pool
	ledger  *budget.Ledger
	disk    *disk.Tier // nil: none
	cache   *cache.Cache
	store   *storage.Store
	shm     *shm.Host // nil: none
	gateway *gateway.Server
}

// newApp makes the parts from a config; verifier says who may come in.
func newApp(ctx context.Context, cfg *configs.Config, mounts []storage.Mount, log *slog.Logger, verifier func(*slog.Logger) (auth.Verifier, error)) (_ *app, err error) {
	a := &app{log: log}
	defer func() {
		if err != nil {
			a.close()
		}
	}()
	idle, limit, err := shares(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	if a.tel, err = newTelemetry(ctx, cfg.Telemetry.OTLP, log); err != nil {
		return nil, err
	}
	a.pool = frame.NewPool(frame.Options{Idle: idle})
	a.ledger = budget.New(budget.Options{Limit: limit, Large: limit / 4, Heap: limitHeap(heapShare(cfg.Memory))})
	a.store, err = storage.New(ctx, storage.Options{
		Mounts: mounts, Pool: a.pool, Ledger: a.ledger, Refresh: cfg.Refresh, Buckets: bucketOptions(), Archive: archiveOf(cfg.Snapshots, log), Events: a.tel.storageEvents(),
		PageBytes: cfg.Limits.PageBytes,
	})
	if err != nil {
		return nil, err
	}
	if err := a.keep(ctx, cfg); err != nil {
		return nil, err
	}
	who, err := verifier(log)
	if err != nil {
		return nil, err
	}
	extra := []grpc.ServerOption{a.tel.serverOption()}
	if cfg.TLS.Cert != "" {
		creds, err := serverCredentials(cfg.TLS.Cert, cfg.TLS.Key, func(err error) {
			log.Warn("the changed certificate is no good; the old one stays in use", "error", err.Error())
		})
		if err != nil {
			return nil, err
		}
		extra = append(extra, grpc.Creds(creds))
	}
	if err := a.share(cfg.SharedMemory, limit/4); err != nil {
		return nil, err
	}
	a.gateway = gateway.New(gateway.Options{
		Store: a.store, Pool: a.pool, Ledger: a.ledger, Cache: a.cache, Disk: a.disk, Verifier: who, Policy: auth.ByGrants{},
		AdmissionTimeout: cfg.Limits.AdmissionTimeout, StallTimeout: cfg.Limits.StallTimeout,
		Decoders: feed.Decoders(cfg.Cache.Decoders), Events: a.tel.gatewayEvents(), Shm: a.shm,
	}, extra...)
	return a, a.tel.observe(a.pool, a.gateway)
}

// keep makes what keeps blocks, in memory and on disk.
func (a *app) keep(ctx context.Context, cfg *configs.Config) (err error) {
	o := cache.Options{Ledger: a.ledger, Pool: a.pool, Policy: cfg.Cache.Policy, Shares: sharesOf(cfg.Tenants)}
	if limit := cfg.Cache.DiskLimit; limit > 0 {
		// A gateway that this one takes over from may still be on its way out.
		const wait = 5 * time.Second
		a.disk, err = disk.Open(ctx, disk.Options{
			Dir: cfg.Snapshots.Dir, Limit: limit, Version: build(), Pool: a.pool, Wait: wait, Events: diskEvents(cfg.Snapshots.Dir, a.log),
		})
		switch {
		case errors.Is(err, disk.ErrBusy):
			return fmt.Errorf("cache.disk.dir: %w: each gateway with a cache.disk.limit needs a folder of its own", err)
		case errors.Is(err, disk.ErrNoDirectory):
			return usageError{fmt.Errorf("cache.disk.dir: %w", err)}
		case err != nil:
			return err
		}
		o.Below = a.disk
	}
	a.cache, err = cache.New(o)
	return err
}

// share offers shared memory: where it is told to, or, if the system has any, under a name that nobody else has. All clients
// together get no more than most bytes of it.
func (a *app) share(where string, most int64) error {
	if where == "off" || where == "auto" && !shm.Supported {
		return nil
	}
	if where == "auto" {
		where = "@headrace-" + rand.Text()
	}
	l, err := listen("unix:" + where)
	if err != nil {
		return fmt.Errorf("shared_memory: %w", err)
	}
	if filepath.IsAbs(where) { // trainers may be other users, in other containers: it is keys that let them in
		if err := os.Chmod(where, 0o666); err != nil {
			l.Close()
			return fmt.Errorf("shared_memory: %w", err)
		}
	}
	if a.shm, err = shm.New(l.(*net.UnixListener), most); err != nil {
		l.Close()
		return usageError{fmt.Errorf("shared_memory: %w; off does without", err)}
	}
	return nil
}

// diskEvents are what the cache on disk tells.
func diskEvents(dir string, log *slog.Logger) disk.Events {
	return disk.Events{
		Failed: func(err error) {
			log.Warn("blocks are not kept on disk as they should be; the gateway goes on without", "dir", dir, "error", err.Error())
		},
		Works: func() { log.Info("blocks are kept on disk again", "dir", dir) },
		Damaged: func(files int64, example string, err error) {
			log.Warn("blocks on disk were damaged: they are loaded again", "dir", dir, "blocks", files, "example", example, "error", err.Error())
		},
	}
}

// close ends what runs and gives everything back; whatever is left over is a bug and is said.
func (a *app) close() {
	if a.gateway != nil {
		a.gateway.Close()
	}
	if a.shm != nil {
		a.shm.Close()
	}
	if a.disk != nil {
		a.disk.Close()
	}
	var errs []error
	if a.cache != nil {
		errs = append(errs, a.cache.Close())
	}
	if a.store != nil {
		errs = append(errs, a.store.Close())
	}
	if a.pool != nil {
		errs = append(errs, a.pool.Close())
	}
	if a.tel != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		errs = append(errs, a.tel.close(ctx))
	}
	if err := errors.Join(errs...); err != nil {
		a.log.Error("close", "error", err.Error())
	}
}

// archiveOf is where snapshots are kept: in a folder of the cache directory, else in the user's own cache unless gateways
// share a bucket.
func archiveOf(c configs.Snapshots, log *slog.Logger) storage.Archive {
	a := storage.Archive{URL: c.URL, Keep: c.Keep}
	switch user, err := os.UserCacheDir(); {
	case c.Dir != "":
		a.Dir = filepath.Join(c.Dir, "snapshots")
	case c.URL != "":
	case err != nil:
		log.Warn("snapshots are not kept: cursors end with this process; cache.disk.dir names a folder", "error", err.Error())
	default:
		a.Dir = filepath.Join(user, "headrace", "snapshots")
	}
	return a
}

// bucketOptions let Azure's keys be found where its own tools look for them; the clients of the other stores look by
// themselves.
func bucketOptions() bucket.Options { return bucket.Options{Env: os.Getenv} }

// The shares of the memory limit.
const (
	minHeap   = 64 << 20
	minMemory = 2 * minHeap
)

// shares divides the memory: an eighth is the Go heap's, an eighth of the rest may lie idle for reuse, streams may use
// what remains.
func shares(memory int64) (idle, limit int64, err error) {
	if memory < minMemory {
		return 0, 0, fmt.Errorf("%d bytes are too few: give at least %d", memory, int64(minMemory))
	}
	pool := memory - heapShare(memory)
	idle = pool / 8
	return idle, pool - idle, nil
}

// memoryFor is the least memory of which streams may use so much.
func memoryFor(limit int64) int64 {
	pool := limit + (limit+6)/7
	return max(pool+(pool+6)/7, pool+minHeap, minMemory)
}

// sharesOf is what tenants are granted of what is kept, by name.
func sharesOf(tenants []configs.Tenant) map[string]float64 {
	all := map[string]float64{}
	for _, t := range tenants {
		if t.Memory > 0 {
			all[t.Name] = t.Memory
		}
	}
	return all
}

func heapShare(memory int64) int64 { return max(memory/8, minHeap) }

// mounts are the datasets of a config.
func mounts(cfg *configs.Config) ([]storage.Mount, error) {
	all := make([]storage.Mount, 0, len(cfg.Datasets))
	var problems []error
	for _, d := range cfg.Datasets {
		rule, err := ruleOf(d)
		if err != nil {
			problems = append(problems, fmt.Errorf("dataset %q: schema: %w", d.Name, err))
		}
		all = append(all, storage.Mount{Name: d.Name, URL: d.URL, Files: d.Files, Exclude: d.Exclude, Schema: rule, Hive: d.Partitioning == "hive"})
	}
	if problems != nil {
		return nil, usageError{errors.Join(problems...)}
	}
	return all, nil
}

// ruleOf is what the files of a dataset must share.
func ruleOf(d configs.Dataset) (schema.Rule, error) {
	rule := schema.Rule{Widen: d.Schema == "widen"}
	if d.Columns == nil {
		return rule, nil
	}
	fields := make([]arrow.Field, len(d.Columns))
	for i, c := range d.Columns {
		var err error
		if fields[i], err = schema.ParseField(c.Name, c.Type); err != nil {
			return rule, fmt.Errorf("column %q: %w", c.Name, err)
		}
	}
	rule.Given = arrow.NewSchema(fields, nil)
	return rule, nil
}

// verifierOf is what the config says of tokens.
func verifierOf(c configs.Auth) func(*slog.Logger) (auth.Verifier, error) {
	return func(log *slog.Logger) (auth.Verifier, error) {
		if c.Mode == "none" {
			return auth.None{}, nil
		}
		keys := make([]auth.Key, len(c.Keys))
		for i, k := range c.Keys {
			keys[i] = auth.Key{Algorithm: k.Algorithm, File: k.File, ID: k.KeyID}
		}
		return auth.NewJWT(auth.Options{
			Issuer: c.Issuer, Audience: c.Audience, Keys: keys, Skew: c.Skew,
			TenantClaim: c.TenantClaim, GrantsClaim: c.GrantsClaim,
			Events: auth.Events{
				KeyLoaded: func(file string) { log.Info("key file loaded", "file", file) },
				KeyRefused: func(file string, err error) {
					log.Warn("the changed key file is no good; the old key stays in use", "file", file, "error", err.Error())
				},
			},
		})
	}
}

// anybody lets everybody in: for commands that read in their own process.
func anybody(*slog.Logger) (auth.Verifier, error) { return auth.None{}, nil }

// newLog writes JSON lines with trace ids.
func newLog(w io.Writer, level string) *slog.Logger {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo
	}
	return slog.New(tracedHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l})})
}
