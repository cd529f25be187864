package frame

// slabBytes is how much is mapped at once for regions to be cut from. Alone, one
// of some MiB has room for a large page or two and small ones around them, and
// fresh memory in small pages takes eight times as long to be touched. Side by
// side they lie in large ones altogether. What nobody has cut off yet takes no
// memory, but for the rest of the large page that the last cut went through.
const slabBytes = 64 << 20

// cut returns size bytes of fresh memory, zeroed, on a page border. Each piece is
// unmapped by itself. The lock is held.
func (p *Pool) cut(size int) (mem []byte, err error) {
	if size > slabBytes/4 {
		return mapMemory(size)
	}
	if size > len(p.slab) {
		slab, err := mapMemory(slabBytes)
		if err != nil {
			return nil, err
		}
		p.dropSlab()
		p.slab = slab
	}
	mem, p.slab = p.slab[:size:size], p.slab[size:]
	return mem, nil
}

// dropSlab unmaps what was not cut off. The lock is held.
func (p *Pool) dropSlab() {
	if len(p.slab) > 0 {
		unmapMemory(p.slab)
	}
	p.slab = nil
}
