package snapshot

import (
	"crypto/sha256"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/schema"
)

// Schemas keeps one schema for all shards that have the same one: most shards
// of a dataset do, and what is compared with it is compared once. The zero
// value is ready; it is not safe for concurrent use.
type Schemas struct {
	known  map[[sha256.Size]byte]*arrow.Schema
	shared map[*arrow.Schema]*arrow.Schema // what became of those that came by
}

// Share returns the schema that is kept for all that are like s, metadata included.
func (c *Schemas) Share(s *arrow.Schema) *arrow.Schema {
	if s == nil {
		return nil
	}
	if out := c.shared[s]; out != nil {
		return out
	}
	sum := sha256.Sum256(schema.Message(s))
	if c.known == nil {
		c.known, c.shared = map[[sha256.Size]byte]*arrow.Schema{}, map[*arrow.Schema]*arrow.Schema{}
	}
	if c.known[sum] == nil {
		c.known[sum] = s
	}
	c.shared[s] = c.known[sum]
	return c.known[sum]
}

// Keep forgets all schemas that none of the shards has.
func (c *Schemas) Keep(shards map[string]*Shard) {
	clear(c.shared)
	used := make(map[*arrow.Schema]bool, len(c.known))
	for _, sh := range shards {
		used[sh.Schema] = true
	}
	for sum, s := range c.known {
		if !used[s] {
			delete(c.known, sum)
		}
	}
}
