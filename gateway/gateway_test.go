package gateway_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/budget"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	issuer   = "https://id.test"
	audience = "headrace"
)

// house is a whole gateway on a loopback port, with tokens.
type house struct {
	*gateway.Server
	address string
	key     string
	pool    *frame.Pool
	ledger  *budget.Ledger
	audits  func() []gateway.Read
	refused func() []string
}

// start serves the folder. When the test ends nothing may be left: no lease, no byte.
func start(t *testing.T, folder string, change ...func(*gateway.Options)) *house {
	t.Helper()
	h := &house{key: filepath.Join(t.TempDir(), "key"), pool: frame.NewPool(frame.Options{Poison: true})}
	if err := os.WriteFile(h.key, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.ledger = budget.New(budget.Options{Limit: 1 << 30, Large: 256 << 20})
	store, err := storage.New(t.Context(), storage.Options{
		Mounts: []storage.Mount{{URL: folder, Tree: true}}, Pool: h.pool, Refresh: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := auth.NewJWT(auth.Options{Issuer: issuer, Audience: audience, Keys: []auth.Key{{Algorithm: "HS256", File: h.key}}})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var reads []gateway.Read
	var refused []string
	h.refused = func() []string { mu.Lock(); defer mu.Unlock(); return refused }
	h.audits = func() []gateway.Read { mu.Lock(); defer mu.Unlock(); return reads }
	o := gateway.Options{
		Store: store, Pool: h.pool, Ledger: h.ledger, Verifier: verifier, Policy: auth.ByGrants{}, AdmissionTimeout: time.Second,
		Events: gateway.Events{
			Audit: func(_ context.Context, r gateway.Read, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					refused = append(refused, err.Error())
				}
				reads = append(reads, r)
			},
			Fault: func(_ context.Context, id string, err error) { t.Errorf("fault %s: %v", id, err) },
		},
	}
	for _, c := range change {
		c(&o)
	}
	h.ledger = o.Ledger
	if o.Cache == nil {
		if o.Cache, err = cache.New(cache.Options{Ledger: h.ledger, Pool: h.pool}); err != nil {
			t.Fatal(err)
		}
	}
	h.Server = gateway.New(o)
	port, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = port.Addr().String()
	var serving sync.WaitGroup
	serving.Go(func() { _ = h.Serve(port) })
	t.Cleanup(func() {
		h.Close()
		serving.Wait()
		if h.Shm != nil {
			h.Shm.Close()
		}
		if err := h.Cache.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		if st := h.ledger.Stats(); st.Reserved != 0 {
			t.Errorf("memory still reserved: %+v", st)
		}
		if err := h.pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// token mints a token with the given grants.
func (h *house) token(t *testing.T, grants ...string) string { return h.tokenOf(t, "t", grants...) }

// tokenOf is a token of a tenant's.
func (h *house) tokenOf(t *testing.T, tenant string, grants ...string) string {
	t.Helper()
	token, err := auth.Mint(auth.Minting{
		KeyFile: h.key, Algorithm: "HS256", Issuer: issuer, Audience: audience, Subject: "s", Tenant: tenant, Grants: grants, TTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// dial connects without a token.
func (h *house) dial(t *testing.T) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(h.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (h *house) client(t *testing.T) flight.FlightServiceClient {
	t.Helper()
	return flight.NewFlightServiceClient(h.dial(t))
}

// bearer puts headers on a call.
func bearer(ctx context.Context, authorization ...string) context.Context {
	for _, a := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", a)
	}
	return ctx
}

// python makes test files.
func python(t *testing.T, script string, args ...string) {
	t.Helper()
	path := os.Getenv("HEADRACE_PYTHON")
	if path == "" {
		path = "../.venv/bin/python"
		if _, err := os.Stat(path); err != nil {
			t.Skip("no Python environment: run make venv")
		}
	}
	script = "import sys, pyarrow as pa, pyarrow.parquet as pq\nroot = sys.argv[1]\n" + script
	out, err := exec.Command(path, append([]string{"-c", script}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("python: %v\n%s", err, out)
	}
}

// twoTeams makes the datasets a/one and b/two.
func twoTeams(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	python(t, `
import os
for name in ("a/one", "b/two"):
    os.makedirs(f"{root}/{name}")
    for shard in range(2):
        table = pa.table({"id": range(100_000), "secret": [f"s{i}" for i in range(100_000)]})
        pq.write_table(table, f"{root}/{name}/{shard}.parquet")
`, dir)
	return dir
}
