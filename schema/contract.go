package schema

import "github.com/apache/arrow-go/v18/arrow"

// Contract folds the schemas of a dataset's shards into one.
type Contract struct{}

// NewContract returns a contract that binds nobody yet.
func NewContract() *Contract { return &Contract{} }

// Add binds one more shard to the contract; s is already Plain. ErrMismatch
// names the shard, the field and both types.
func (c *Contract) Add(shard string, s *arrow.Schema) error { return nil }

// Schema returns the joined schema; nil before the first Add.
func (c *Contract) Schema() *arrow.Schema { return nil }
