package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

// Archive says where snapshots outlive the process. The zero Archive keeps none.
type Archive struct {
	Dir  string        // a folder of this gateway's own; made if it is not there
	URL  string        // a bucket that gateways share
	Keep time.Duration // unused for that long, a snapshot is deleted; 0: never
}

// open returns the shelves, the nearest first. One that does not open is told
// and left out: snapshots then live as long as the process.
func (a Archive) open(ctx context.Context, clients *bucket.Clients, events Events) ([]*shelf, error) {
	var shelves []*shelf
	if a.Dir != "" {
		if err := os.MkdirAll(a.Dir, 0o700); err != nil {
			events.Archive(ctx, "", fmt.Errorf("snapshots are not kept on disk: %w", err))
		} else {
			shelves = append(shelves, &shelf{url: a.Dir, own: true})
		}
	}
	if a.URL != "" {
		if _, err := bucket.Base(a.URL); err != nil {
			return nil, fmt.Errorf("snapshots: %w", err)
		}
		shelves = append(shelves, &shelf{url: a.URL})
	}
	for _, s := range shelves {
		s.clients, s.keep, s.now, s.events = clients, a.Keep, time.Now, events
	}
	return shelves, nil
}

// shelf is a bucket with snapshots of all datasets. A dataset has a folder of
// its name with these objects:
//
//	ID.manifest        what the snapshot consists of; never changed
//	SUM.facts          facts of objects, each in one of these; never changed
//	ID.PLACE.pins      where the data were found, for data at one place
//	PLACE.newest       the newest identity that was planned for data at one place
//	ID.used-DATE       a day on which it was planned
//	NAME.tag           the identity that a name stands for
type shelf struct {
	url     string
	own     bool // only this gateway's, so that its own pins have a place here
	clients *bucket.Clients
	keep    time.Duration
	now     func() time.Time
	events  Events
}

// maxFile bounds what is read of one file of a shelf, in bytes.
const maxFile = 256 << 20

// get reads a whole object of a dataset.
func (s *shelf) get(ctx context.Context, dataset, name string) ([]byte, error) {
	b, err := s.clients.Open(s.url)
	if err != nil {
		return nil, err
	}
	defer func() { _ = b.Close() }() // only read: nothing to tell
	obj, err := b.Open(ctx, dataset+"/"+name, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = obj.Close() }()
	if obj.Size() > maxFile {
		return nil, fmt.Errorf("%w: %q has %d bytes", snapshot.ErrManifest, name, obj.Size())
	}
	data := make([]byte, obj.Size())
	return data, obj.ReadAt(ctx, data, 0)
}

func (s *shelf) put(ctx context.Context, dataset, name string, data []byte) error {
	b, err := s.clients.Open(s.url)
	if err != nil {
		return err
	}
	return errors.Join(b.Put(ctx, dataset+"/"+name, data), b.Close())
}

// load reads the shards of a snapshot, without pins, and which packs their facts are in.
func (s *shelf) load(ctx context.Context, dataset, id string) ([]*snapshot.Shard, map[snapshot.Sum]snapshot.Sum, error) {
	text, err := s.get(ctx, dataset, id+".manifest")
	if err != nil {
		return nil, nil, err
	}
	m, err := snapshot.ParseManifest(id, text)
	if err != nil {
		return nil, nil, err
	}
	packs := make([][]byte, len(m.Packs))
	group, sub := errgroup.WithContext(ctx)
	group.SetLimit(maxPacks)
	for i, name := range m.Packs {
		group.Go(func() (err error) {
			packs[i], err = s.get(sub, dataset, packName(name))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		if errors.Is(err, bucket.ErrNotFound) {
			err = fmt.Errorf("%w: %w", snapshot.ErrManifest, err)
		}
		return nil, nil, err
	}
	facts, in := snapshot.NewFacts(codecs), map[snapshot.Sum]snapshot.Sum{}
	for i, name := range m.Packs {
		names, err := facts.Read(name, packs[i])
		if err != nil {
			return nil, nil, err
		}
		for _, n := range names {
			in[n] = name
		}
	}
	shards, err := m.Shards(facts)
	return shards, in, err
}

func packName(sum snapshot.Sum) string { return hex.EncodeToString(sum[:]) + ".facts" }

// pins reads where the shards of a snapshot were last found; unknown ones are empty.
func (s *shelf) pins(ctx context.Context, dataset, id, place string, shards int) []string {
	if text, err := s.get(ctx, dataset, id+"."+place+".pins"); err == nil {
		if pins, err := snapshot.ParsePins(shards, text); err == nil {
			return pins
		}
	}
	return make([]string, shards) // they are found again by looking
}

// newest returns the identity of the newest snapshot of data at a place; "" if
// nobody knows.
func (s *shelf) newest(ctx context.Context, dataset, place string) string {
	text, err := s.get(ctx, dataset, place+".newest")
	if id := strings.TrimSpace(string(text)); err == nil && isID(id) {
		return id
	}
	return ""
}

func isID(id string) bool {
	sum, err := hex.DecodeString(id)
	return err == nil && len(sum) == sha256.Size && id == strings.ToLower(id)
}

// maxPacks bounds the packs of one snapshot; maxPack the objects in one.
const (
	maxPacks = 16
	maxPack  = 1 << 16
)

// codecs are the formats' own for manifests.
var codecs = func() snapshot.Codecs {
	c := snapshot.Codecs{}
	for name, f := range formats {
		c[name] = f.codec
	}
	return c
}()

// written is what one shelf is known to have of one dataset.
type written struct {
	*shelf
	packed map[snapshot.Sum]snapshot.Sum // the packs that facts are in
	good   map[string]bool               // manifests that are there and whole
	pinned map[string]snapshot.Sum       // the pins that are there, by identity
	used   map[string]string             // the day that is noted, by identity
	latest string                        // what newest says
	doomed map[string]bool               // packs that nobody needed a day ago
	swept  string                        // the day of the last sweep
	failed string                        // the last error that was told
	rest   time.Time                     // when to try again after an error
	last   *snapshot.Snapshot            // what was saved last, as the newest
}

func newWritten(s *shelf) *written {
	return &written{
		shelf: s, packed: map[snapshot.Sum]snapshot.Sum{}, good: map[string]bool{}, pinned: map[string]snapshot.Sum{},
		used: map[string]string{}, doomed: map[string]bool{},
	}
}

// save writes what the shelf lacks of a snapshot of data at a place.
func (w *written) save(ctx context.Context, snap *snapshot.Snapshot, place string, pins, newest bool) error {
	if w.last == snap && w.used[snap.ID] == w.now().UTC().Format(dayForm) { // most plans
		return nil
	}
	if !w.good[snap.ID] {
		if err := w.saveManifest(ctx, snap); err != nil {
			return err
		}
		w.good[snap.ID] = true
	}
	if text := snapshot.MarshalPins(snap.Shards); pins && w.pinned[snap.ID] != sha256.Sum256(text) {
		if err := w.put(ctx, snap.Dataset, snap.ID+"."+place+".pins", text); err != nil {
			return err
		}
		w.pinned[snap.ID] = sha256.Sum256(text)
	}
	if newest && pins && w.latest != snap.ID {
		if err := w.put(ctx, snap.Dataset, place+".newest", []byte(snap.ID+"\n")); err != nil {
			return err
		}
		w.latest = snap.ID
	}
	if newest {
		w.last = snap
	}
	today := w.now().UTC().Format(dayForm)
	if w.used[snap.ID] == today {
		return nil
	}
	if err := w.put(ctx, snap.Dataset, snap.ID+usedMark+today, []byte("\n")); err != nil {
		return err
	}
	w.used[snap.ID] = today
	return nil
}

// saveManifest writes the facts that no pack has yet, then the manifest. Once
// they lie in many packs, all go into new ones.
func (w *written) saveManifest(ctx context.Context, snap *snapshot.Snapshot) error {
	facts := snapshot.NewFacts(codecs)
	m := &snapshot.Manifest{ID: snap.ID, Objects: make([]snapshot.Entry, len(snap.Shards))}
	var all, fresh []snapshot.Sum
	packs := map[snapshot.Sum]bool{}
	for i, sh := range snap.Shards {
		sum := facts.Add(sh)
		m.Objects[i] = snapshot.Entry{Key: sh.Key, Facts: sum}
		all = append(all, sum)
		if pack, ok := w.packed[sum]; ok {
			packs[pack] = true
		} else {
			fresh = append(fresh, sum)
		}
	}
	if len(packs) >= maxPacks {
		clear(packs)
		fresh = all
	}
	for part := range slices.Chunk(fresh, maxPack) {
		name, text := facts.Pack(part)
		if err := w.put(ctx, snap.Dataset, packName(name), text); err != nil {
			return err
		}
		for _, sum := range part {
			w.packed[sum] = name
		}
		packs[name] = true
	}
	for name := range packs {
		m.Packs = append(m.Packs, name)
	}
	slices.SortFunc(m.Packs, func(a, b snapshot.Sum) int { return strings.Compare(string(a[:]), string(b[:])) })
	return w.put(ctx, snap.Dataset, snap.ID+".manifest", m.Marshal())
}

// tell says that a shelf failed, once for each way in which it does.
func (w *written) tell(ctx context.Context, dataset string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.failed {
		w.events.Archive(ctx, dataset, err)
	}
	w.failed = text
}

// keeper keeps the snapshots of one dataset on all shelves. Its methods are
// safe for concurrent use.
type keeper struct {
	mu      sync.Mutex
	dataset string
	place   string // of its data
	common  bool   // pins mean the same to all gateways
	far     bool   // the data lie in a store
	shelves []*written
}

func newKeeper(dataset, folder string, m *mount, shelves []*shelf) *keeper {
	name, common, err := bucket.Place(m.URL)
	if err != nil {
		shelves = nil // the mount does not open either
	}
	sum := sha256.Sum256([]byte(name + "\x00" + folder))
	k := &keeper{dataset: dataset, place: hex.EncodeToString(sum[:8]), common: common, far: !strings.HasPrefix(name, "file://")}
	for _, s := range shelves {
		k.shelves = append(k.shelves, newWritten(s))
	}
	return k
}

// save keeps a snapshot wherever it is not kept yet. Shelves that fail are told.
func (k *keeper) save(ctx context.Context, snap *snapshot.Snapshot, newest bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.shelves {
		if w.now().Before(w.rest) {
			continue
		}
		err := w.saveInTime(ctx, snap, k.place, w.own || k.common, newest)
		if ctx.Err() == nil {
			w.tell(ctx, k.dataset, err)
		}
	}
}

// A plan waits for a shelf no longer than patience, and once that fails, the
// plans of the next minute do not wait for it.
const (
	patience = 30 * time.Second
	pause    = time.Minute
)

func (w *written) saveInTime(ctx context.Context, snap *snapshot.Snapshot, place string, pins, newest bool) error {
	sub, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := w.save(sub, snap, place, pins, newest)
	if err == nil {
		err = w.sweep(sub, snap)
	}
	if err != nil && ctx.Err() == nil {
		w.rest = w.now().Add(pause)
	}
	return err
}

// load returns the shards of a snapshot as the nearest shelf has it, with the
// pins that are known. ErrSnapshotGone if no shelf has it, else why it cannot be
// had.
func (k *keeper) load(ctx context.Context, id string) ([]*snapshot.Shard, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var failed []error
	for _, w := range k.shelves {
		shards, in, err := w.load(ctx, k.dataset, id)
		switch {
		case err == nil:
			for facts, pack := range in {
				w.packed[facts] = pack
			}
			w.good[id] = true
			k.pin(ctx, id, shards)
			k.settle(shards)
			return shards, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, bucket.ErrNotFound):
		case errors.Is(err, snapshot.ErrManifest):
			w.tell(ctx, k.dataset, fmt.Errorf("snapshot %s: %w", id, err)) // as if it were not there
		default:
			w.tell(ctx, k.dataset, err)
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		return nil, fmt.Errorf("dataset %q: snapshot %s cannot be looked up: %w", k.dataset, id, errors.Join(failed...))
	}
	return nil, fmt.Errorf("%w: dataset %q has no snapshot %q", ErrSnapshotGone, k.dataset, id)
}

// settle tells the formats whether their objects are far away.
func (k *keeper) settle(shards []*snapshot.Shard) {
	for _, sh := range shards {
		if f, ok := sh.Facts.(interface{ Place(remote bool) }); ok {
			f.Place(k.far)
		}
	}
}

// pin fills in the pins that any shelf knows.
func (k *keeper) pin(ctx context.Context, id string, shards []*snapshot.Shard) {
	for _, w := range k.shelves {
		for i, pin := range w.pins(ctx, k.dataset, id, k.place, len(shards)) {
			if shards[i].Pin == "" {
				shards[i].Pin = pin
			}
		}
		if !slices.ContainsFunc(shards, func(sh *snapshot.Shard) bool { return sh.Pin == "" }) {
			return
		}
	}
}

// newest returns the shards of the snapshot that was planned last, as far as a
// shelf knows; nil if none does.
func (k *keeper) newest(ctx context.Context) []*snapshot.Shard {
	ctx, cancel := context.WithTimeout(ctx, patience) // without it, objects are looked at
	defer cancel()
	for _, w := range k.shelves {
		if id := w.newest(ctx, k.dataset, k.place); id != "" {
			if shards, err := k.load(ctx, id); err == nil {
				return shards
			}
		}
	}
	return nil
}
