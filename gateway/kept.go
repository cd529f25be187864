package gateway

import "github.com/headrace/headrace/gateway/feed"

// Kept is what of a tenant's a gateway keeps in memory, and how often that served the tenant. Sizes are in bytes.
type Kept struct {
	Policy string  `json:"policy"`          // as configured
	Active string  `json:"active"`          // in use
	Limit  int64   `json:"limit"`           // the most that is kept of all tenants', if no stream needs memory
	Share  float64 `json:"share,omitempty"` // of what is kept, below which no other tenant pushes this one
	Bytes  int64   `json:"bytes"`           // that are kept of what this one has loaded
	Blocks int     `json:"blocks"`          // kept or in use
	Leased int     `json:"leased"`          // in use
	Served []Hits  `json:"served"`          // by policy
	Epochs []Epoch `json:"epochs"`          // the last ones that it read, newest first
	Disk   *Disk   `json:"disk,omitempty"`
}

// Disk is where blocks are kept beside memory, all tenants' together: what they take there, the metrics tell.
type Disk struct {
	Limit   int64 `json:"limit"`   // bytes
	Failing bool  `json:"failing"` // the log says why
}

// Hits is how often blocks were asked for, of one tenant under one policy.
type Hits struct {
	Tenant string           `json:"tenant"`
	Policy string           `json:"policy"`
	Hits   map[string]int64 `json:"hits"`   // by tier
	Misses int64            `json:"misses"` // loaded from the store
	Loaded int64            `json:"loaded"` // bytes that these are in memory
}

// Epoch is what reading an epoch has taken so far, in bytes of blocks in memory.
type Epoch struct {
	Dataset string `json:"dataset"`
	Epoch   int64  `json:"epoch"`
	Read    int64  `json:"read"`    // each block once
	Fetched int64  `json:"fetched"` // from the store
	Least   int64  `json:"least"`   // that a later epoch could come down to, with all memory that streams leave
}

// manyEpochs is how many a tenant is told of.
const manyEpochs = 16

// kept tells what is kept of a tenant's, and how often that served it. What others have is none of its business.
func (s *Server) kept(tenant string) Kept {
	st := s.Cache.Stats()
	k := Kept{Policy: st.Policy, Active: st.Active, Limit: st.Limit, Served: []Hits{}, Epochs: []Epoch{}}
	for _, h := range st.Tenants {
		if h.Tenant == tenant {
			k.Share, k.Bytes, k.Blocks, k.Leased = h.Share, h.Kept, h.Blocks, h.Leased
		}
	}
	for _, c := range st.Counts {
		if c.Tenant == tenant {
			k.Served = append(k.Served, Hits{Tenant: c.Tenant, Policy: c.Policy, Hits: c.Hits, Misses: c.Misses, Loaded: c.Loaded})
		}
	}
	for _, p := range s.feed.Passes().Last {
		if p.Tenant == tenant && len(k.Epochs) < manyEpochs {
			k.Epochs = append(k.Epochs, Epoch{Dataset: p.Dataset, Epoch: p.Epoch, Read: p.Read, Fetched: p.Fetched, Least: p.Least})
		}
	}
	if s.Disk != nil {
		d := s.Disk.Stats()
		k.Disk = &Disk{Limit: d.Limit, Failing: d.Failed != ""}
	}
	return k
}

// Passes tells what the epochs of all tenants have read and fetched.
func (s *Server) Passes() feed.Passes { return s.feed.Passes() }

// Decoding is how many blocks are being decoded.
type Decoding struct {
	Decoders int `json:"decoders"` // there are at the moment, for all tenants
	Busy     int `json:"busy"`     // blocks that are being decoded
	Waiting  int `json:"waiting"`  // blocks that wait for a decoder
}

// Decoding tells what the decoders do for a tenant; "" is all tenants.
func (s *Server) Decoding(tenant string) Decoding { return Decoding(s.feed.Decoding(tenant)) }
