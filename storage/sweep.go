package storage

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/headrace/headrace/storage/bucket"
	"github.com/headrace/headrace/storage/snapshot"
)

const (
	dayForm  = "20060102"
	usedMark = ".used-"
)

// contents is what a shelf has of one dataset.
type contents struct {
	used      map[string]string   // the last day that is noted, by identity
	manifests map[string]bool     // by identity
	beside    map[string][]string // names of other objects, by identity
	packs     []string
	tags      []string
}

func (s *shelf) contents(ctx context.Context, dataset string) (*contents, error) {
	b, err := s.clients.Open(s.url)
	if err != nil {
		return nil, err
	}
	c := &contents{used: map[string]string{}, manifests: map[string]bool{}, beside: map[string][]string{}}
	err = b.List(ctx, dataset+"/", func(a bucket.Attrs) error {
		name := strings.TrimPrefix(a.Key, dataset+"/")
		if strings.HasSuffix(name, "/") && name != "" { // a dataset below this one
			return fs.SkipDir
		}
		c.add(name)
		return nil
	})
	return c, errors.Join(err, b.Close())
}

// add sorts one object in. What the archive did not write is passed over.
func (c *contents) add(name string) {
	id, rest, _ := strings.Cut(name, ".")
	day, isDay := strings.CutPrefix("."+rest, usedMark)
	switch {
	case strings.HasSuffix(name, tagMark):
		c.tags = append(c.tags, name)
	case !isID(id):
	case rest == "manifest":
		c.manifests[id] = true
	case rest == "facts":
		c.packs = append(c.packs, name)
	case isDay:
		c.used[id] = max(c.used[id], day)
		c.beside[id] = append(c.beside[id], name)
	case strings.HasSuffix(rest, ".pins"):
		c.beside[id] = append(c.beside[id], name)
	}
}

// sweep deletes, once a day, the snapshots that nobody has planned for long,
// but for the given one and those with a tag; days that are noted beside later
// ones; and the packs that no manifest needs and none needed a day ago: one that
// is new may belong to a manifest that another gateway is about to write.
func (w *written) sweep(ctx context.Context, last *snapshot.Snapshot) error {
	today := w.now().UTC().Format(dayForm)
	if w.keep == 0 || w.swept == today {
		return nil
	}
	c, err := w.contents(ctx, last.Dataset)
	if err != nil {
		return err
	}
	kept := map[string]bool{last.ID: true}
	for _, tag := range c.tags {
		text, err := w.get(ctx, last.Dataset, tag)
		if err != nil {
			return err
		}
		kept[strings.TrimSpace(string(text))] = true
	}
	var old []string
	for id := range c.manifests {
		if !kept[id] && w.expired(c.used[id]) {
			old = append(old, id+".manifest")
			old = append(old, c.beside[id]...)
			delete(c.manifests, id)
			delete(w.good, id)
			delete(w.used, id)
			delete(w.pinned, id)
		}
	}
	for id, names := range c.beside {
		for _, name := range names {
			if day, ok := strings.CutPrefix(name, id+usedMark); ok && day < c.used[id] {
				old = append(old, name)
			}
		}
	}
	unneeded, err := w.unneeded(ctx, last.Dataset, c)
	if err != nil {
		return err
	}
	if err := w.remove(ctx, last.Dataset, append(old, unneeded...)); err != nil {
		return err
	}
	w.swept = today
	return nil
}

// expired tells whether a day is further back than snapshots are kept. What has
// no day was planned by a gateway that could not note it: it stays.
func (w *written) expired(day string) bool {
	t, err := time.Parse(dayForm, day)
	return err == nil && w.now().Sub(t.AddDate(0, 0, 1)) > w.keep
}

// unneeded returns the packs that may go, and remembers those that may next time.
func (w *written) unneeded(ctx context.Context, dataset string, c *contents) (names []string, err error) {
	needed := map[string]bool{}
	for id := range c.manifests {
		text, err := w.get(ctx, dataset, id+".manifest")
		if err != nil {
			return nil, err
		}
		m, err := snapshot.ParseManifest(id, text)
		if err != nil {
			continue // damaged: it needs nothing
		}
		for _, p := range m.Packs {
			needed[packName(p)] = true
		}
	}
	doomed := map[string]bool{}
	for _, p := range c.packs {
		switch {
		case needed[p]:
		case w.doomed[p]:
			names = append(names, p)
		default:
			doomed[p] = true
		}
	}
	w.doomed = doomed
	return names, nil
}

func (w *written) remove(ctx context.Context, dataset string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	gone := map[string]bool{}
	b, err := w.clients.Open(w.url)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range names {
		failed = append(failed, b.Remove(ctx, dataset+"/"+name))
		gone[name] = true
	}
	for facts, pack := range w.packed {
		if gone[packName(pack)] {
			delete(w.packed, facts)
		}
	}
	return errors.Join(errors.Join(failed...), b.Close())
}
