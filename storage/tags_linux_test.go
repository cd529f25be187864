package storage

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

// A name stands for a snapshot, on all gateways that share it, and keeps it.
func TestTags(t *testing.T) {
	dir, shared := folder(t, fourShards("parquet")), Archive{URL: t.TempDir(), Keep: 24 * time.Hour}
	a := restart(t, dir, shared)
	first := a.newest("d")
	must(t, a.Tag(t.Context(), "d", "v1", ""))
	add(t, dir, "4.parquet", "p0.parquet")
	b := restart(t, dir, Archive{Dir: t.TempDir(), URL: shared.URL})
	if s := b.planned("v1"); s.ID != first.ID {
		t.Errorf("v1 is %s, want %s", s.ID, first.ID)
	}
	second := b.planned("")
	must(t, errors.Join(b.Tag(t.Context(), "d", "latest", second.ID), b.Tag(t.Context(), "d", "best", "v1")))
	tags, err := a.Tags(t.Context(), "d")
	if want := map[string]string{"v1": first.ID, "best": first.ID, "latest": second.ID}; err != nil || !reflect.DeepEqual(tags, want) {
		t.Errorf("%v, %v", tags, err)
	}
	must(t, errors.Join(b.Untag(t.Context(), "d", "best"), b.Untag(t.Context(), "d", "never was"), b.Tag(t.Context(), "d", "v1", second.ID)))
	if s := a.planned("v1"); s.ID != second.ID {
		t.Error("the name did not move on")
	}
	for _, unknown := range []string{"best", "never-was"} {
		if _, err := a.Snapshot(t.Context(), "d", unknown); !errors.Is(err, ErrSnapshotGone) {
			t.Errorf("%s: %v, want ErrSnapshotGone", unknown, err)
		}
	}
	if err := a.Tag(t.Context(), "d", "x", "never-was"); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone", err)
	}
	none := one(t, dir)
	if none.Tag(t.Context(), "d", "x", "") == nil {
		t.Error("a name that nothing keeps")
	}
	if _, err := none.Snapshot(t.Context(), "d", "x"); !errors.Is(err, ErrSnapshotGone) {
		t.Errorf("%v, want ErrSnapshotGone", err)
	}
}

func TestTaggedSnapshotsAreNotDeleted(t *testing.T) {
	cache, dir := t.TempDir(), folder(t, fourShards("parquet"))
	r := restart(t, dir, Archive{Dir: cache, Keep: 24 * time.Hour})
	tagged := r.planned("")
	must(t, r.Tag(t.Context(), "d", "kept", ""))
	add(t, dir, "4.parquet", "p0.parquet")
	other := r.planned("")
	add(t, dir, "5.parquet", "p0.parquet")
	r.planned("")
	for _, w := range r.registry.known("d").keeper.shelves {
		w.now = func() time.Time { return time.Now().AddDate(0, 0, 5) }
	}
	r.planned("")
	if all := archiveFiles(t, cache, ".manifest"); count(all, tagged.ID) != 1 || count(all, other.ID) != 0 {
		t.Errorf("%v", all)
	}
	r.quiet()
}
