package gateway

// Kept is what a gateway keeps in memory, and how often that served. Sizes are in bytes.
type Kept struct {
	Policy  string `json:"policy"`  // as configured
	Active  string `json:"active"`  // in use
	Limit   int64  `json:"limit"`   // the most that is kept, if no stream needs memory
	Bytes   int64  `json:"bytes"`   // that are kept
	Blocks  int    `json:"blocks"`  // kept or in use
	Leased  int    `json:"leased"`  // in use
	Waiting int    `json:"waiting"` // windows that wait for a block which another one loads
	Served  []Hits `json:"served"`  // by tenant and policy
}

// Hits is how often blocks were asked for, of one tenant under one policy.
type Hits struct {
	Tenant string           `json:"tenant"`
	Policy string           `json:"policy"`
	Hits   map[string]int64 `json:"hits"`   // by tier
	Misses int64            `json:"misses"` // loaded from the store
	Loaded int64            `json:"loaded"` // bytes that these are in memory
}

// Kept tells what is kept, and how often it served a tenant; "" is all tenants.
func (s *Server) Kept(tenant string) Kept {
	st := s.Cache.Stats()
	k := Kept{
		Policy: st.Policy, Active: st.Active, Limit: st.Limit, Bytes: st.Kept, Blocks: st.Blocks, Leased: st.Leased, Waiting: st.Waiting,
		Served: []Hits{},
	}
	for _, c := range st.Counts {
		if tenant == "" || c.Tenant == tenant {
			k.Served = append(k.Served, Hits{Tenant: c.Tenant, Policy: c.Policy, Hits: c.Hits, Misses: c.Misses, Loaded: c.Loaded})
		}
	}
	return k
}
