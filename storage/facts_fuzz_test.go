package storage

import (
	"crypto/sha256"
	"errors"
	"path/filepath"
	"testing"

	"github.com/headrace/headrace/schema"
	"github.com/headrace/headrace/storage/snapshot"
)

// FuzzFacts forges what formats keep of their files: with checksums that are
// right it is refused, or good enough to plan with. Its seeds are of real files.
func FuzzFacts(f *testing.F) {
	f.Add([]byte("headrace facts 1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		sum := sha256.Sum256(text)
		pack := append(append([]byte{}, text...), sum[:]...)
		facts := snapshot.NewFacts(codecs)
		names, err := facts.Read(sha256.Sum256(pack), pack)
		if err != nil && !errors.Is(err, snapshot.ErrManifest) {
			t.Fatal(err)
		}
		for _, n := range names {
			sh, err := facts.Shard(filepath.Join("k", "x"), n)
			if err != nil || sh.Err != nil {
				continue
			}
			snap, err := snapshot.New("d", []*snapshot.Shard{sh}, snapshot.Rules{})
			if err != nil {
				continue
			}
			need := (&Store{}).Sizes(snap, schema.All(snap.Schema)).Need(snap.Blocks(nil))
			if need.Block < 0 || need.Scratch < 0 {
				t.Errorf("a need of %+v", need)
			}
		}
	})
}
