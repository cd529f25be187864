package gateway

import "runtime/metrics"

// Memory is where a gateway's memory is, in bytes. It is for who runs the gateway: it tells what all tenants together do.
type Memory struct {
	Limit    int64 `json:"limit"`    // that streams may use
	Reserved int64 `json:"reserved"` // of it, in use or not
	Lent     int64 `json:"lent"`     // of that, what goes back as soon as somebody waits
	// Used is what is in use, by kind: those of the ledger, all within the limit, and beside it "idle", which is kept
	// for reuse, and "heap", what of Go's heap is charged to no other kind. They add up.
	Used    map[string]int64 `json:"used"`
	Queued  int64            `json:"queued"`  // handed to gRPC and not yet sent; it lies in the kinds above
	Waiting int              `json:"waiting"` // streams that wait for memory
}

// Memory tells where the memory is at this moment.
func (s *Server) Memory() Memory {
	st, objects := s.Ledger.Stats(), []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(objects)
	m := Memory{Limit: st.Limit, Reserved: st.Reserved, Lent: st.Lent, Waiting: st.Waiting, Used: map[string]int64{
		"idle": s.Pool.Stats().Idle, "heap": max(int64(objects[0].Value.Uint64())-st.Heap, 0),
	}}
	for kind, n := range st.Used {
		m.Used[string(kind)] = n
	}
	_, m.Queued = s.conns.Queued()
	return m
}

// Holding is what of a gateway's memory a tenant has, in bytes.
type Holding struct {
	Limit   int64            `json:"limit"`   // that the streams of all tenants may use
	Used    map[string]int64 `json:"used"`    // by kind: "frames", the blocks that it loaded, in use or kept, and "batches" on their way
	Waiting int              `json:"waiting"` // its streams that wait for memory
}

// holding tells what a tenant has.
func (s *Server) holding(tenant string) Holding {
	h := Holding{Limit: s.Ledger.Stats().Limit, Used: map[string]int64{"frames": 0, "batches": 0}}
	for _, t := range s.Cache.Stats().Tenants {
		if t.Tenant == tenant {
			h.Used["frames"] = t.Bytes
		}
	}
	h.Used["batches"], h.Waiting = s.flights.memory(tenant)
	return h
}
