package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headrace/headrace/storage/bucket"
)

// Tag gives a snapshot a name, which requests may use and which keeps it from
// being deleted. A name that is taken moves on. Names are the caller's to check.
func (s *Store) Tag(ctx context.Context, dataset, name, id string) error {
	snap, err := s.Snapshot(ctx, dataset, id)
	if err != nil {
		return err
	}
	k := s.registry.known(dataset).keeper
	shelf, err := k.shared()
	if err != nil {
		return err
	}
	s.Keep(ctx, snap)
	if failed := k.failure(); failed != "" {
		return fmt.Errorf("snapshot %s could not be kept: %s", snap.ID, failed)
	}
	return shelf.put(ctx, dataset, name+tagMark, []byte(snap.ID+"\n"))
}

// Untag takes a name away; one that is not there is no error.
func (s *Store) Untag(ctx context.Context, dataset, name string) error {
	d, _, err := s.find(ctx, dataset)
	if err != nil {
		return err
	}
	shelf, err := d.keeper.shared()
	if err != nil {
		return err
	}
	return shelf.remove(ctx, dataset, []string{name + tagMark})
}

// Tags returns the names that snapshots of a dataset have, with their identities.
func (s *Store) Tags(ctx context.Context, dataset string) (map[string]string, error) {
	d, _, err := s.find(ctx, dataset)
	if err != nil {
		return nil, err
	}
	shelf, err := d.keeper.shared()
	if err != nil {
		return nil, err
	}
	c, err := shelf.contents(ctx, dataset)
	if err != nil {
		return nil, err
	}
	tags := make(map[string]string, len(c.tags))
	for _, name := range c.tags {
		text, err := shelf.get(ctx, dataset, name)
		if err != nil {
			return nil, err
		}
		tags[strings.TrimSuffix(name, tagMark)] = strings.TrimSpace(string(text))
	}
	return tags, nil
}

const tagMark = ".tag"

// shared is the one shelf that tags are on: that of all gateways, if there is one.
func (k *keeper) shared() (*written, error) {
	if len(k.shelves) == 0 {
		return nil, errors.New("snapshots are not kept, so they cannot have names: set snapshots or cache.disk.dir")
	}
	return k.shelves[len(k.shelves)-1], nil
}

// failure is what that shelf last failed with.
func (k *keeper) failure() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.shelves[len(k.shelves)-1].failed
}

// tagged returns the identity that a name stands for.
func (k *keeper) tagged(ctx context.Context, name string) (string, error) {
	gone := fmt.Errorf("%w: dataset %q has no snapshot with the tag %q", ErrSnapshotGone, k.dataset, name)
	shelf, err := k.shared()
	if err != nil {
		return "", gone
	}
	text, err := shelf.get(ctx, k.dataset, name+tagMark)
	switch id := strings.TrimSpace(string(text)); {
	case errors.Is(err, bucket.ErrNotFound):
		return "", gone
	case err != nil:
		return "", fmt.Errorf("dataset %q: tag %q: %w", k.dataset, name, err)
	case !isID(id):
		return "", gone
	default:
		return id, nil
	}
}
