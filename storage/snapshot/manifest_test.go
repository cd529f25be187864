package snapshot

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/schema"
)

// tally is the codec of tests: facts are a number, and one for each segment.
var tally = Codecs{Parquet: {
	Pack: func(sh *Shard, e *Encoder) {
		e.Number(sh.Facts.(int64))
		for _, seg := range sh.Segments {
			e.Signed(seg.Facts.(int64))
		}
	},
	Unpack: func(sh *Shard, d *Decoder) {
		sh.Facts = d.Number(1000)
		for i := range sh.Segments {
			sh.Segments[i].Facts = d.Signed()
		}
	},
}}

// described makes a shard as a format does.
func described(key string, facts int64, rows ...int64) *Shard {
	sh := shard(key)
	sh.Facts = facts
	for i, r := range rows {
		sh.Segments = append(sh.Segments, Segment{Rows: r, Bytes: 8 * r, Facts: int64(-i)})
	}
	return sh
}

// golden is what the frozen files hold.
func golden() []*Shard {
	bad := &Shard{Key: "bad.parquet", Size: 7, Format: Parquet, Err: fmt.Errorf("%w: footer: malformed", ErrCorrupt)}
	twin := described("z=1/b.parquet", 5, 10, 20)
	twin.Schema = oneColumn(arrow.BinaryTypes.String, true)
	return []*Shard{described("a.parquet", 5, 10, 20), described("b.parquet", 5, 10, 20), bad, twin}
}

// archive packs shards into one pack and a manifest.
func archive(t interface{ Fatal(...any) }, shards []*Shard) (id string, manifest, pack []byte) {
	s := mustNew(t, shards...)
	f := NewFacts(tally)
	m := &Manifest{ID: s.ID}
	var names []Sum
	for _, sh := range s.Shards {
		sum := f.Add(sh)
		m.Objects = append(m.Objects, Entry{sh.Key, sum})
		names = append(names, sum)
	}
	name, pack := f.Pack(names)
	m.Packs = []Sum{name}
	return s.ID, m.Marshal(), pack
}

// unarchive is the way back.
func unarchive(id string, manifest, pack []byte) ([]*Shard, error) {
	m, err := ParseManifest(id, manifest)
	if err != nil {
		return nil, err
	}
	f := NewFacts(tally)
	for _, p := range m.Packs {
		if _, err := f.Read(p, pack); err != nil {
			return nil, err
		}
	}
	return m.Shards(f)
}

// Manifests of today must be readable for as long as cursors of today are kept.
func TestManifestGolden(t *testing.T) {
	shards := golden()[:3]
	id, manifest, pack := archive(t, shards)
	pins := MarshalPins([]*Shard{{Pin: "1.2"}, {}, {Pin: "7 tag version x"}})
	for name, b := range map[string][]byte{"golden.manifest": manifest, "golden.facts": pack, "golden.pins": pins} {
		path := filepath.Join("testdata", name)
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(path, []byte(hex.Dump(b)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != hex.Dump(b) {
			t.Errorf("%s: %v: this form is frozen; it is now\n%s", name, err, hex.Dump(b))
		}
	}
	again, err := unarchive(id, manifest, pack)
	if err != nil {
		t.Fatal(err)
	}
	if _, m, p := archive(t, again); !bytes.Equal(m, manifest) || !bytes.Equal(p, pack) {
		t.Error("written again, they differ")
	}
	got, err := ParsePins(3, pins)
	if err != nil || strings.Join(got, "|") != "1.2||7 tag version x" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := ParsePins(2, pins); !errors.Is(err, ErrManifest) {
		t.Errorf("%v: pins of another snapshot", err)
	}
}

func TestShardsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var shards []*Shard
		for i := range rapid.IntRange(1, 5).Draw(t, "shards") {
			sh := described(fmt.Sprint(i), rapid.Int64Range(0, 1000).Draw(t, "facts"), rapid.SliceOfN(rapid.Int64Range(0, 1<<40), 0, 5).Draw(t, "rows")...)
			sh.Size = rapid.Int64Range(0, 1<<62).Draw(t, "size")
			if i > 0 && rapid.Bool().Draw(t, "bad") {
				kind := rapid.SampledFrom([]error{ErrCorrupt, ErrUnsupported, os.ErrPermission}).Draw(t, "kind")
				sh = broken(sh.Key, fmt.Errorf("%w: why", kind))
			}
			shards = append(shards, sh)
		}
		id, manifest, pack := archive(t, shards)
		again, err := unarchive(id, manifest, pack)
		if err != nil {
			t.Fatal(err)
		}
		for i, sh := range again {
			was := shards[i]
			if sh.Key != was.Key || sh.Size != was.Size || sh.Format != was.Format || sh.Meta != was.Meta || cause(sh.Err) != cause(was.Err) {
				t.Fatalf("%+v became %+v", was, sh)
			}
			if sh.Err != nil {
				if sh.Err.Error() != was.Err.Error() {
					t.Fatalf("%v became %v", was.Err, sh.Err)
				}
				continue
			}
			if !sh.Schema.Equal(was.Schema) || sh.Facts != was.Facts || fmt.Sprint(sh.Segments) != fmt.Sprint(was.Segments) || sh.Identity() != was.Identity() {
				t.Fatalf("%+v became %+v", was, sh)
			}
		}
	})
}

// No byte of either file can be changed without notice, nor can one be cut short or made longer.
func TestDamagedFilesAreRefused(t *testing.T) {
	id, manifest, pack := archive(t, golden()[:3])
	for which, whole := range [][]byte{manifest, pack} {
		try := func(what string, b []byte) {
			files := [][]byte{manifest, pack}
			files[which] = b
			if _, err := unarchive(id, files[0], files[1]); !errors.Is(err, ErrManifest) {
				t.Errorf("file %d, %s: %v, want ErrManifest", which, what, err)
			}
		}
		for i := range whole {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 0x40
			try(fmt.Sprintf("byte %d", i), flipped)
			try(fmt.Sprintf("cut at %d", i), whole[:i])
		}
		try("longer", append(bytes.Clone(whole), 0))
	}
}

// Forged with all checksums right, a file is still held against what it is named by.
func TestForgedManifestsAreRefused(t *testing.T) {
	id, manifest, pack := archive(t, golden()[:3])
	m, err := ParseManifest(id, manifest)
	if err != nil {
		t.Fatal(err)
	}
	for name, forge := range map[string]func(*Manifest){
		"another key":      func(m *Manifest) { m.Objects[0].Key = "a" },
		"a key again":      func(m *Manifest) { m.Objects[1].Key = m.Objects[0].Key },
		"another order":    func(m *Manifest) { m.Objects[0], m.Objects[1] = m.Objects[1], m.Objects[0] },
		"others' facts":    func(m *Manifest) { m.Objects[0].Facts = m.Objects[2].Facts },
		"facts of nothing": func(m *Manifest) { m.Objects[0].Facts = Sum{} },
		"one less":         func(m *Manifest) { m.Objects = m.Objects[1:] },
		"no packs":         func(m *Manifest) { m.Packs = nil },
		"another pack":     func(m *Manifest) { m.Packs[0][0]++ },
		"another identity": func(m *Manifest) { m.ID = strings.Repeat("0", 64) },
	} {
		forged := &Manifest{ID: m.ID, Packs: append([]Sum{}, m.Packs...), Objects: append([]Entry{}, m.Objects...)}
		forge(forged)
		if _, err := unarchive(id, forged.Marshal(), pack); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v, want ErrManifest", name, err)
		}
	}
}

// sealed is a file of one kind with whatever in it, its checksum right.
func sealed(magic string, body ...byte) []byte {
	return seal(&Encoder{b: append([]byte(magic), body...)})
}

func TestCountsAreNotBelieved(t *testing.T) {
	huge := []byte{0xFF, 0xFF, 0xFF, 0xFF, 0x7F}
	id := strings.Repeat("00", 32)
	if _, err := ParseManifest(id, sealed(magicManifest, append(make([]byte, 32), huge...)...)); !errors.Is(err, ErrManifest) {
		t.Errorf("%v", err)
	}
	if _, err := ParsePins(1<<30, sealed(magicPins, huge...)); !errors.Is(err, ErrManifest) {
		t.Errorf("%v", err)
	}
	for _, body := range [][]byte{huge, append([]byte{0}, huge...), {0x80, 0x00}, {1, 4, 'x'}} {
		b := sealed(magicPack, body...)
		if _, err := NewFacts(tally).Read(sumOf(b), b); !errors.Is(err, ErrManifest) {
			t.Errorf("%x: %v", body, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	id, manifest, pack := archive(f, golden()[:3])
	f.Add(manifest, pack)
	_, manifest, pack = archive(f, []*Shard{described("x", 1)})
	f.Add(manifest, pack)
	f.Add(sealed(magicManifest), sealed(magicPack, 0, 0))
	f.Fuzz(func(t *testing.T, manifest, pack []byte) {
		// What the checksums would catch is let through, so that the rest is reached.
		for _, b := range []*[]byte{&manifest, &pack} {
			if end := len(*b) - len(Sum{}); end > 0 {
				*b = seal(&Encoder{b: bytes.Clone((*b)[:end])})
			}
		}
		facts := NewFacts(tally)
		_, packed := facts.Read(sumOf(pack), pack)
		m, err := ParseManifest(id, manifest)
		if err == nil && packed == nil {
			_, err = m.Shards(facts)
		}
		for _, err := range []error{packed, err} {
			if err != nil && !errors.Is(err, ErrManifest) {
				t.Errorf("%v is no ErrManifest", err)
			}
		}
		for sum := range facts.packed {
			if sh, err := facts.Shard("k", sum); err == nil && sh.Err == nil && schema.Check(sh.Schema) == nil {
				_, _ = New("d", []*Shard{sh}, Rules{})
			}
		}
	})
}
