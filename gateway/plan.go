package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/auth"
	"github.com/headrace/headrace/gateway/feed"
	"github.com/headrace/headrace/gateway/wire"
	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/snapshot"
)

// planned is a request that passed every check, with all that it means.
type planned struct {
	request    *wire.Request
	snapshot   *snapshot.Snapshot
	projection *schema.Projection
	schema     *arrow.Schema // as the client sees it
	ordered
}

// plan checks a request against the caller's rights and the data, and finds out what it means. Rights come first, and
// what may not be read looks like what does not exist.
func (s *Server) plan(ctx context.Context, method string, req *wire.Request) (*planned, error) {
	return s.planWithin(ctx, method, req, s.Ledger.Stats().Limit)
}

// planWithin plans for a gateway with so many bytes for streams.
func (s *Server) planWithin(ctx context.Context, method string, req *wire.Request, limit int64) (p *planned, err error) {
	ctx, end := s.Events.Span(ctx, "plan")
	who := principal(ctx)
	defer func() {
		end(err)
		s.Events.Audit(ctx, read(method, who, req, p), unveiled(err))
	}()
	if err := req.Validate(); err != nil {
		return nil, err
	}
	granted, ok := s.Policy.Columns(who, req.Dataset)
	if !ok {
		return nil, noDataset(req.Dataset)
	}
	snap, err := s.Store.Snapshot(ctx, req.Dataset, req.Snapshot)
	if errors.Is(err, storage.ErrNoDataset) {
		return nil, noDataset(req.Dataset)
	}
	if err != nil {
		return nil, veil(err, req.Dataset, granted)
	}
	p = &planned{request: req, snapshot: snap}
	if p.projection, err = project(snap, req, granted); err != nil {
		return nil, err
	}
	p.schema = p.projection.Schema
	if req.RowID {
		p.schema = feed.WithRowID(p.schema)
	}
	if err := p.expect(req.ExpectSchema); err != nil {
		return nil, err
	}
	if p.ordered, err = s.arrange(who.Tenant, snap, p.projection, req, limit); err != nil {
		return nil, veil(err, req.Dataset, granted)
	}
	s.Store.Keep(ctx, snap)
	return p, nil
}

// read is what the audit says of a request, planned or refused.
func read(method string, who *auth.Principal, req *wire.Request, p *planned) Read {
	r := Read{Method: method, Subject: who.Subject, Tenant: who.Tenant, Dataset: req.Dataset}
	for _, path := range req.Columns {
		r.Columns = append(r.Columns, strings.Join(path, "."))
	}
	if p != nil && p.hash != "" {
		r.Snapshot, r.Plan, r.Rows = p.snapshot.ID, p.hash, p.totals().Rows
	}
	return r
}

func noDataset(name string) error {
	return fmt.Errorf("%w: %q", storage.ErrNoDataset, name)
}

// project finds the columns asked for among those granted.
func project(snap *snapshot.Snapshot, req *wire.Request, granted auth.Columns) (*schema.Projection, error) {
	visible := restrict(snap.Schema, granted)
	if _, taken := visible.FieldsByName(feed.RowIDColumn); taken && req.RowID {
		return nil, fmt.Errorf("%w: row_id: the dataset has a column %q of its own", wire.ErrRequest, feed.RowIDColumn)
	}
	if req.Columns == nil {
		return schema.All(visible), nil
	}
	p, err := schema.Project(visible, req.Columns)
	if err != nil {
		return nil, fmt.Errorf("dataset %q: %w%s", req.Dataset, err, meant(visible, req.Columns))
	}
	return p, nil
}

// meant asks whether the first column that is not there was meant to be another one, of those that the caller may read.
func meant(visible *arrow.Schema, paths [][]string) string {
	for _, path := range paths {
		fields := visible.Fields()
		for i, name := range path {
			names := make([]string, len(fields))
			for j, f := range fields {
				names[j] = f.Name
			}
			at := slices.Index(names, name)
			if at < 0 {
				if near := wire.Suggest(name, names); near != "" {
					return fmt.Sprintf(": did you mean %q?", strings.Join(append(slices.Clone(path[:i]), near), "."))
				}
				return ""
			}
			t, ok := fields[at].Type.(*arrow.StructType)
			if fields = nil; ok {
				fields = t.Fields()
			}
		}
	}
	return ""
}

// restrict leaves only the granted columns of a schema. What writers say of the whole table goes too when some columns are
// hidden: pandas, for one, lists every column's name there.
func restrict(s *arrow.Schema, granted auth.Columns) *arrow.Schema {
	if granted.All() {
		return s
	}
	fields := slices.DeleteFunc(s.Fields(), func(f arrow.Field) bool { return !granted.Has(f.Name) })
	if len(fields) == s.NumFields() {
		return s
	}
	return arrow.NewSchema(fields, nil)
}

// expect compares the schema with the one the client was made for.
func (p *planned) expect(fingerprint string) error {
	if fingerprint == "" {
		return nil
	}
	if have := schema.Fingerprint(p.schema); have != fingerprint {
		return fmt.Errorf("%w: expect_schema is %s, dataset %q has %s for these columns", schema.ErrMismatch, fingerprint, p.request.Dataset, have)
	}
	return nil
}

// selectShards turns a request's shards into numbers; nil means all.
func selectShards(snap *snapshot.Snapshot, want *wire.Shards) ([]int, error) {
	from, to := 0, len(snap.Shards)
	switch {
	case want == nil:
	case want.Keys != nil:
		return shardsByKey(snap, want.Keys)
	case want.To > int64(to):
		return nil, fmt.Errorf("%w: shards: %d:%d, the snapshot has %d", wire.ErrRequest, want.From, want.To, to)
	default:
		from, to = int(want.From), int(want.To)
	}
	numbers := make([]int, 0, to-from)
	for i := from; i < to; i++ {
		numbers = append(numbers, i)
	}
	return numbers, nil
}

func shardsByKey(snap *snapshot.Snapshot, keys []string) ([]int, error) {
	numbers := make([]int, 0, len(keys))
	for _, key := range keys {
		i, ok := slices.BinarySearchFunc(snap.Shards, key, func(sh *snapshot.Shard, k string) int {
			return strings.Compare(sh.Key, k)
		})
		if !ok {
			return nil, fmt.Errorf("%w: shards: the snapshot has no shard %q", wire.ErrRequest, key)
		}
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	return numbers, nil
}
