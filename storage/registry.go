package storage

import "sync"

// registry keeps every dataset that was ever found, so that snapshots stay
// known when a listing lacks it.
type registry struct {
	mu       sync.Mutex
	datasets map[string]*dataset
}

// meet returns the dataset of that name, new if there is none or if the name
// now belongs to another folder.
func (r *registry) meet(name, folder string, m *mount) *dataset {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.datasets[name]; d != nil && d.folder == folder {
		return d
	}
	if r.datasets == nil {
		r.datasets = map[string]*dataset{}
	}
	d := newDataset(name, folder, m)
	r.datasets[name] = d
	return d
}

// known returns the dataset of that name, nil if there never was one.
func (r *registry) known(name string) *dataset {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.datasets[name]
}
