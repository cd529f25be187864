package bucket

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// memory is a bucket that lives in this process.
type memory struct {
	mu      sync.Mutex
	written int64
	objects map[string]kept
}

type kept struct {
	stamp
	data []byte
}

func newMemory() *memory { return &memory{objects: map[string]kept{}} }

// memoryPage is how many keys a page has: few, so that tests turn pages.
const memoryPage = 100

func (m *memory) list(_ context.Context, prefix, page string) ([]entry, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []entry
	for key, o := range m.objects {
		if strings.HasPrefix(key, prefix) && key > page {
			all = append(all, entry{key, o.stamp})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	if len(all) <= memoryPage {
		return all, "", nil
	}
	return all[:memoryPage], all[memoryPage-1].key, nil
}

func (m *memory) get(_ context.Context, key string, of stamp, off, n int64) (*answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	switch {
	case !ok:
		return nil, &fault{what: absent, final: true}
	case of.tag != "" && of.tag != o.tag:
		return nil, &fault{what: replaced, final: true}
	case n == 0:
		return &answer{stamp: o.stamp}, nil
	}
	// Written data are never touched again, so they can be read without the lock.
	return &answer{stamp: o.stamp, body: io.NopCloser(bytes.NewReader(o.data[off:min(off+n, o.size)]))}, nil
}

func (m *memory) change(_ context.Context, key string, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if data == nil {
		delete(m.objects, key)
		return nil
	}
	m.written++
	m.objects[key] = kept{stamp{size: int64(len(data)), tag: strconv.FormatInt(m.written, 10)}, bytes.Clone(data)}
	return nil
}
