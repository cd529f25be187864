package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
)

// Kind says what a bucket is that Conform looks at.
type Kind struct {
	Open     func(t *testing.T, prefix string) *bucket.Bucket // a prefix of the one bucket
	Keys     int                                              // how many a long listing has: more than the store puts on a page
	Local    bool                                             // a folder: it keeps its own rules about what is being replaced
	Versions bool                                             // replaced and removed objects stay readable
	Plain    bool                                             // its keys are names of files: not everything goes
}

// Conform tests all that a bucket promises.
func Conform(t *testing.T, k Kind) {
	for name, test := range map[string]func(*testing.T, Kind, *bucket.Bucket){
		"ReadsWhatWasPut":                       readsWhatWasPut,
		"Ranges":                                ranges,
		"EmptyObject":                           emptyObject,
		"B51KeysWithSigns":                      keysWithSigns,
		"B53KeysThatHoldEscapes":                keysThatHoldEscapes,
		"B50LongListing":                        longListing,
		"FoldersAreListedAndLeftOut":            foldersAreListed,
		"B56ReplacedObjects":                    replacedObjects,
		"RemovedObjects":                        removedObjects,
		"WhatIsNotThere":                        whatIsNotThere,
		"ManyReadersAtOnce":                     manyReaders,
		"EndedContext":                          endedContext,
		"B62NamesThatLeadOut":                   namesThatLeadOut,
		"PinsOfAnotherPlaceAreNotThisVersion":   foreignPins,
		"TwoBucketsOfOnePlaceSeeTheSameObjects": sameObjects,
	} {
		t.Run(name, func(t *testing.T) { test(t, k, k.Open(t, "conform/"+name)) })
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Keys lists a bucket; an entry that cannot be read is an error of the test.
func Keys(t *testing.T, b *bucket.Bucket, prefix string) (keys []string, all map[string]bucket.Attrs) {
	t.Helper()
	all = map[string]bucket.Attrs{}
	must(t, b.List(t.Context(), prefix, func(a bucket.Attrs) error {
		if a.Err != nil {
			t.Errorf("%q cannot be read: %v", a.Key, a.Err)
		}
		keys = append(keys, a.Key)
		all[a.Key] = a
		return nil
	}))
	return keys, all
}

// content is the bytes of an object by its key.
func content(t *testing.T, b *bucket.Bucket, key string, pin bucket.Pin) ([]byte, error) {
	t.Helper()
	o, err := b.Open(t.Context(), key, pin)
	if err != nil {
		return nil, err
	}
	defer func() { must(t, o.Close()) }()
	p := make([]byte, o.Size())
	return p, o.ReadAt(t.Context(), p, 0)
}

func sample(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(p) // never fails
	return p
}

func readsWhatWasPut(t *testing.T, _ Kind, b *bucket.Bucket) {
	want := sample(300_000)
	must(t, b.Put(t.Context(), "a/b.parquet", want))
	_, all := Keys(t, b, "")
	listed := all["a/b.parquet"]
	if listed.Size != int64(len(want)) || listed.Pin == "" {
		t.Errorf("listed as %+v", listed)
	}
	for _, pin := range []bucket.Pin{"", listed.Pin} {
		o, err := b.Open(t.Context(), "a/b.parquet", pin)
		must(t, err)
		got := make([]byte, o.Size())
		must(t, o.ReadAt(t.Context(), got, 0))
		if !bytes.Equal(got, want) {
			t.Error("other bytes came back")
		}
		if !o.Pin().Lists(listed.Pin) || o.Key() != "a/b.parquet" {
			t.Errorf("opened %q with pin %q, listed with %q", o.Key(), o.Pin(), listed.Pin)
		}
		again, err := content(t, b, "a/b.parquet", o.Pin())
		if err != nil || !bytes.Equal(again, want) {
			t.Errorf("opened by its own pin: %v", err)
		}
		must(t, o.Close())
	}
	must(t, b.Put(t.Context(), "a/b.parquet", want[:10]))
	if got, err := content(t, b, "a/b.parquet", ""); err != nil || !bytes.Equal(got, want[:10]) {
		t.Errorf("put a second time: %d bytes, %v", len(got), err)
	}
	must(t, b.Remove(t.Context(), "a/b.parquet"))
	must(t, b.Remove(t.Context(), "a/b.parquet")) // twice is once
	if keys, _ := Keys(t, b, ""); slices.Contains(keys, "a/b.parquet") {
		t.Errorf("removed, and listed: %q", keys)
	}
}

func ranges(t *testing.T, _ Kind, b *bucket.Bucket) {
	want := sample(100_001)
	must(t, b.Put(t.Context(), "x", want))
	o, err := b.Open(t.Context(), "x", "")
	must(t, err)
	defer o.Close()
	for _, r := range [][2]int64{{0, 1}, {0, 100_001}, {1, 2}, {99_999, 2}, {100_000, 1}, {50_000, 0}, {100_001, 0}, {4096, 65_536}} {
		p := make([]byte, r[1])
		if err := o.ReadAt(t.Context(), p, r[0]); err != nil || !bytes.Equal(p, want[r[0]:r[0]+r[1]]) {
			t.Errorf("%d bytes from %d: %v", r[1], r[0], err)
		}
	}
	for _, r := range [][2]int64{{0, 100_002}, {100_001, 1}, {200_000, 1}, {-1, 2}} {
		if err := o.ReadAt(t.Context(), make([]byte, r[1]), r[0]); !errors.Is(err, bucket.ErrTruncated) {
			t.Errorf("%d bytes from %d: %v, want ErrTruncated", r[1], r[0], err)
		}
	}
	p := make([]byte, 10)
	if n, err := o.ReaderAt(t.Context()).ReadAt(p, 99_995); n != 6 || err != io.EOF || !bytes.Equal(p[:6], want[99_995:]) {
		t.Errorf("at the end: %d bytes, %v", n, err)
	}
}

func emptyObject(t *testing.T, _ Kind, b *bucket.Bucket) {
	must(t, b.Put(t.Context(), "empty", nil))
	_, all := Keys(t, b, "")
	for _, pin := range []bucket.Pin{"", all["empty"].Pin} {
		if got, err := content(t, b, "empty", pin); err != nil || len(got) != 0 {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
}

// putAll writes objects that hold their own keys, and reads them as listed.
func putAll(t *testing.T, b *bucket.Bucket, want []string) {
	t.Helper()
	slices.Sort(want)
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for _, key := range want {
		group.Go(func() error { return b.Put(ctx, key, []byte(key)) })
	}
	must(t, group.Wait())
	var keys []string
	_, all := Keys(t, b, "")
	for key := range all {
		if !strings.HasSuffix(key, "/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if !slices.Equal(keys, want) {
		t.Fatalf("listed %d keys: %.2000q, want %d: %.2000q", len(keys), keys, len(want), want)
	}
}

func readAll(t *testing.T, b *bucket.Bucket) {
	t.Helper()
	_, all := Keys(t, b, "")
	for key, a := range all {
		if strings.HasSuffix(key, "/") {
			continue
		}
		for _, pin := range []bucket.Pin{a.Pin, ""} {
			if got, err := content(t, b, key, pin); err != nil || string(got) != key {
				t.Errorf("%q: %q, %v", key, got, err)
			}
		}
	}
}

func keysWithSigns(t *testing.T, _ Kind, b *bucket.Bucket) {
	putAll(t, b, []string{
		"a+b", "t=10:00/x.parquet", "x=y&z", "ü", "e\u0301", "😀/🚂.parquet", "a b", "a  b", " lead", "q?x=1", "h#1", "semi;colon", "at@x", "dollar$",
		"comma,", "(paren)", "'quote'", "star*", "tilde~", "[b]", "{c}", "pipe|", "caret^", "back`tick", "exclam!", "日本/語.parquet", "\"double\"", "<lt>",
	})
	readAll(t, b)
}

func keysThatHoldEscapes(t *testing.T, _ Kind, b *bucket.Bucket) {
	putAll(t, b, []string{
		"brand=Brand%2321/x", "brand=Brand#21/x", "a%20b", "a b", "a%2Fb", "a/b", "a%2fb", "a%252Fb", "100%", "%", "%zz", "__0x2f__", "a+b", "a%2Bb",
		"..a/x", "a../x", "...", "k=%3D%26/x",
	})
	readAll(t, b)
}

func longListing(t *testing.T, k Kind, b *bucket.Bucket) {
	want := make([]string, 0, k.Keys)
	for i := range k.Keys {
		want = append(want, fmt.Sprintf("part+%d/%05d.x", i%3, i))
	}
	putAll(t, b, want)
	keys, _ := Keys(t, b, "part+1/")
	if n := (k.Keys + 1) / 3; len(keys) != n || !slices.IsSorted(keys) {
		t.Errorf("one folder: %d keys, sorted: %v, want %d", len(keys), slices.IsSorted(keys), n)
	}
}

func foldersAreListed(t *testing.T, _ Kind, b *bucket.Bucket) {
	for _, key := range []string{"a.x", "a/1", "a/b/2", "a/b/3", "a0", "hidden/deep/4", "hidden/5", "z"} {
		must(t, b.Put(t.Context(), key, []byte(key)))
	}
	var got []string
	list := func(prefix string) []string {
		got = nil
		must(t, b.List(t.Context(), prefix, func(a bucket.Attrs) error {
			got = append(got, a.Key)
			if a.Key == "hidden/" {
				return fs.SkipDir
			}
			return nil
		}))
		return got
	}
	for prefix, want := range map[string][]string{
		"":      {"a.x", "a/", "a/1", "a/b/", "a/b/2", "a/b/3", "a0", "hidden/", "z"},
		"a/":    {"a/1", "a/b/", "a/b/2", "a/b/3"},
		"a":     {"a.x", "a/", "a/1", "a/b/", "a/b/2", "a/b/3", "a0"},
		"a/b/2": {"a/b/2"},
		"none/": nil,
	} {
		if !slices.Equal(list(prefix), want) {
			t.Errorf("under %q: %q, want %q", prefix, got, want)
		}
	}
	if keys, _ := Keys(t, b.Under("a"), ""); !slices.Equal(keys, []string{"1", "b/", "b/2", "b/3"}) {
		t.Errorf("from within a folder: %q", keys)
	}
	stop := errors.New("enough")
	if err := b.List(t.Context(), "", func(bucket.Attrs) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the error of yield", err)
	}
}

// changed tells whether an error says that the object is another one.
func changed(err error) bool { return errors.Is(err, bucket.ErrChanged) }

func replacedObjects(t *testing.T, k Kind, b *bucket.Bucket) {
	old := sample(10_000)
	for name, fresh := range map[string][]byte{"shorter": sample(5_000), "longer": sample(20_000), "as long": bytes.Repeat([]byte{7}, 10_000)} {
		must(t, b.Put(t.Context(), "x", old))
		_, all := Keys(t, b, "")
		o, err := b.Open(t.Context(), "x", "")
		must(t, err)
		p := make([]byte, 1000)
		must(t, o.ReadAt(t.Context(), p, 9_000))
		must(t, b.Put(t.Context(), "x", fresh))

		err = o.ReadAt(t.Context(), p, 0)
		if kept := k.Local || k.Versions; kept && (err != nil || !bytes.Equal(p, old[:1000])) {
			t.Errorf("%s: an open object: %v, want the old bytes", name, err)
		} else if !kept && !changed(err) {
			t.Errorf("%s: an open object: %v, want ErrChanged", name, err)
		}
		if !k.Versions {
			if _, err := content(t, b, "x", o.Pin()); !changed(err) {
				t.Errorf("%s: by the pin of the old one: %v, want ErrChanged", name, err)
			}
		}
		if _, err := content(t, b, "x", all["x"].Pin); !changed(err) {
			if got, _ := content(t, b, "x", all["x"].Pin); !k.Versions || !bytes.Equal(got, old) {
				t.Errorf("%s: by the pin of the old listing: %v, want ErrChanged", name, err)
			}
		}
		if got, err := content(t, b, "x", ""); err != nil || !bytes.Equal(got, fresh) {
			t.Errorf("%s: the next one who asks: %v", name, err)
		}
		must(t, o.Close())
	}
}

func removedObjects(t *testing.T, k Kind, b *bucket.Bucket) {
	old := sample(1_000)
	must(t, b.Put(t.Context(), "x", old))
	o, err := b.Open(t.Context(), "x", "")
	must(t, err)
	defer o.Close()
	p := make([]byte, 100)
	must(t, o.ReadAt(t.Context(), p, 0))
	must(t, b.Remove(t.Context(), "x"))
	err = o.ReadAt(t.Context(), p, 500)
	if kept := k.Local || k.Versions; kept && (err != nil || !bytes.Equal(p, old[500:600])) {
		t.Errorf("%v, want the old bytes", err)
	} else if !kept && !errors.Is(err, bucket.ErrNotFound) && !changed(err) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if _, err := b.Open(t.Context(), "x", ""); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("opened anew: %v, want ErrNotFound", err)
	}
}

func whatIsNotThere(t *testing.T, _ Kind, b *bucket.Bucket) {
	must(t, b.Put(t.Context(), "a/b", []byte("x")))
	for _, key := range []string{"none", "a/b/c", "a/none"} {
		if _, err := b.Open(t.Context(), key, ""); !errors.Is(err, bucket.ErrNotFound) || !strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v, want ErrNotFound that names it", key, err)
		}
	}
	if keys, _ := Keys(t, b.Under("nothing/here"), ""); len(keys) != 0 {
		t.Errorf("listed %q where nothing is", keys)
	}
}

func manyReaders(t *testing.T, _ Kind, b *bucket.Bucket) {
	want := sample(1 << 20)
	must(t, b.Put(t.Context(), "x", want))
	o, err := b.Open(t.Context(), "x", "")
	must(t, err)
	defer o.Close()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range 16 {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		group.Go(func() error {
			for range 8 {
				off := r.Int64N(1<<20 - 1000)
				p := make([]byte, r.IntN(1<<20-int(off)))
				if err := o.ReadAt(ctx, p, off); err != nil {
					return err
				}
				if !bytes.Equal(p, want[off:int(off)+len(p)]) {
					return fmt.Errorf("%d bytes from %d are others", len(p), off)
				}
			}
			return nil
		})
	}
	must(t, group.Wait())
}

func endedContext(t *testing.T, _ Kind, b *bucket.Bucket) {
	must(t, b.Put(t.Context(), "x", []byte("x")))
	o, err := b.Open(t.Context(), "x", "")
	must(t, err)
	defer o.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, opened := b.Open(ctx, "x", "")
	for what, err := range map[string]error{
		"open": opened, "read": o.ReadAt(ctx, make([]byte, 1), 0), "put": b.Put(ctx, "y", nil), "remove": b.Remove(ctx, "x"),
		"list": b.List(ctx, "", func(bucket.Attrs) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", what, err)
		}
	}
}

func namesThatLeadOut(t *testing.T, k Kind, b *bucket.Bucket) {
	must(t, k.Open(t, "conform/secret").Put(t.Context(), "s", []byte("secret")))
	for _, key := range []string{"../secret/s", "/secret/s", "a/../../secret/s", "..", ".", "", "a//b", "./a", "a/", "a\x00b"} {
		_, err := b.Open(t.Context(), key, "")
		if !errors.Is(err, bucket.ErrNotFound) || !errors.Is(err, bucket.ErrOutside) {
			t.Errorf("%q: %v, want what is said of names that are not there", key, err)
		}
		if b.Put(t.Context(), key, nil) == nil || b.Remove(t.Context(), key) == nil {
			t.Errorf("%q was written", key)
		}
	}
	if err := b.List(t.Context(), "../secret/", func(bucket.Attrs) error { return nil }); !errors.Is(err, bucket.ErrOutside) {
		t.Errorf("listed: %v, want ErrOutside", err)
	}
}

func foreignPins(t *testing.T, _ Kind, b *bucket.Bucket) {
	must(t, b.Put(t.Context(), "x", []byte("x")))
	for _, pin := range []bucket.Pin{"x", "1 x", "0 ", "-1 x", "1 x version y", "999999999999999999999 x", "1 %"} {
		if got, err := content(t, b, "x", pin); err == nil || !changed(err) && !errors.Is(err, bucket.ErrNotFound) && !errors.Is(err, bucket.ErrUnreachable) {
			t.Errorf("pin %q: %q, %v, want ErrChanged", pin, got, err)
		}
	}
}

func sameObjects(t *testing.T, k Kind, b *bucket.Bucket) {
	must(t, b.Put(t.Context(), "x", []byte("x")))
	if keys, _ := Keys(t, k.Open(t, "conform"), "TwoBucketsOfOnePlaceSeeTheSameObjects/"); !slices.Equal(keys, []string{"TwoBucketsOfOnePlaceSeeTheSameObjects/x"}) {
		t.Errorf("listed %q", keys)
	}
}
