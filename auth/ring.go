package auth

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// recheck is how often key files are looked at, at most.
const recheck = time.Second

// ring holds the keys of all files and reads a file again when it changes. It looks only when somebody asks for keys,
// so there is no goroutine to end.
type ring struct {
	events Events
	now    func() time.Time
	set    atomic.Pointer[keySet]

	mu     sync.Mutex // held by the one caller that looks at the files; the others go on with the set there is
	files  []keyFile
	looked time.Time
}

// keySet is one state of the ring; it never changes.
type keySet struct{ keys []loadedKey }

type loadedKey struct {
	Key
	public any
}

// keyFile is a file as it was when it was last looked at, good or bad.
type keyFile struct {
	loaded loadedKey
	info   os.FileInfo // nil: it could not be found
}

func newRing(keys []Key, events Events, now func() time.Time) (*ring, error) {
	r := &ring{events: events, now: now, looked: now()}
	for _, k := range keys {
		if !slices.Contains(algorithms, k.Algorithm) {
			return nil, fmt.Errorf("%w: %s: algorithm %q; supported are %s",
				ErrKey, k.File, k.Algorithm, strings.Join(algorithms, ", "))
		}
		public, info, err := load(k)
		if err != nil {
			return nil, err
		}
		r.files = append(r.files, keyFile{loadedKey{k, public}, info})
	}
	r.publish()
	return r, nil
}

func load(k Key) (public any, info os.FileInfo, err error) {
	text, info, err := readKeyFile(k.File)
	if err != nil {
		return nil, info, err
	}
	if public, err = publicKey(k.Algorithm, text); err != nil {
		return nil, info, fmt.Errorf("%w: %s: %w", ErrKey, k.File, err)
	}
	return public, info, nil
}

// algorithms lists those that some key is made for.
func (r *ring) algorithms() []string {
	var used []string
	for _, f := range r.files {
		used = append(used, f.loaded.Algorithm)
	}
	slices.Sort(used)
	return slices.Compact(used)
}

// current returns the keys in use, after a look at the files if the last one is a second ago.
func (r *ring) current() *keySet {
	if r.mu.TryLock() {
		defer r.mu.Unlock()
		if now := r.now(); now.Sub(r.looked) >= recheck || now.Before(r.looked) {
			r.looked = now
			r.look()
		}
	}
	return r.set.Load()
}

func (r *ring) look() {
	changed := false
	for i := range r.files {
		changed = r.reload(&r.files[i]) || changed
	}
	if changed {
		r.publish()
	}
}

// reload reads a file again if it changed, and reports whether its key did. Each bad state is told once.
func (r *ring) reload(f *keyFile) bool {
	info, err := os.Stat(f.loaded.File)
	if err != nil {
		info = nil
	}
	if same(info, f.info) {
		return false
	}
	public, read, err := load(f.loaded.Key)
	f.info = info
	if err != nil {
		if r.events.KeyRefused != nil {
			r.events.KeyRefused(f.loaded.File, err)
		}
		return false
	}
	f.info, f.loaded.public = read, public
	if r.events.KeyLoaded != nil {
		r.events.KeyLoaded(f.loaded.File)
	}
	return true
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (r *ring) publish() {
	set := &keySet{}
	for _, f := range r.files {
		set.keys = append(set.keys, f.loaded)
	}
	r.set.Store(set)
}
