package wire

import (
	"fmt"
	"strings"
)

// rivals maps what other loaders call a thing to the field that does it here.
var rivals = map[string]string{
	"num_replicas": "world_size", "nranks": "world_size", "world": "world_size", "num_shards": "world_size",
	"shard_count": "world_size", "global_size": "world_size", "process_count": "world_size", "num_ranks": "world_size",
	"cur_shard": "rank", "shard_id": "rank", "shard_index": "rank", "global_rank": "rank", "process_index": "rank",
	"local_rank": "rank", "replica": "rank",
	"workers": "num_workers", "workers_count": "num_workers", "worker": "worker_id", "worker_index": "worker_id",
	"shuffle_seed": "seed", "random_seed": "seed", "shuffle_algo": "shuffle", "shuffle_row_groups": "shuffle",
	"shuffle_block_size": "window_blocks", "shuffle_buffer_size": "window_blocks", "buffer_size": "window_blocks",
	"num_canonical_nodes": "groups",
	"batchsize":           "batch_size", "batch": "batch_size", "minibatch_size": "batch_size", "batch_rows": "batch_size",
	"total_batch_size": "global_batch_size", "epochs": "num_epochs", "drop_last": "tail", "last_batch_policy": "tail",
	"columns_to_read": "columns", "schema_fields": "columns", "fields": "columns", "features": "columns",
	"select": "columns", "projection": "columns",
	"table": "dataset", "path": "dataset", "name": "dataset", "uri": "dataset", "dataset_name": "dataset",
	"version": "snapshot", "revision": "snapshot", "files": "shards", "paths": "shards", "codec": "compression",
	"resume_from": "after", "state": "after", "cursor": "after", "offset": "start",
	"max_message_size": "max_message_bytes", "message_bytes": "max_message_bytes", "schema_hash": "expect_schema",
}

// unknown says that a field does not exist, and which one may be meant.
func unknown(key string) string {
	if ours, ok := rivals[strings.ToLower(key)]; ok {
		return fmt.Sprintf("unknown field %s: here it is called %q", clip(key), ours)
	}
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	if near := Suggest(key, known); near != "" {
		return fmt.Sprintf("unknown field %s: did you mean %q?", clip(key), near)
	}
	return fmt.Sprintf("unknown field %s: fields are %s", clip(key), strings.Join(known, ", "))
}

// Suggest returns the known word nearest to a mistyped one, "" if none is near. Case and neighbours swapped count
// little: at most a third of the letters may differ.
func Suggest(word string, known []string) string {
	const longest = 64
	if len(word) > longest {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, k := range known {
		if n := distance(strings.ToLower(word), strings.ToLower(k)); n < least {
			best, least = k, n
		}
	}
	return best
}

// distance counts the letters to insert, delete, replace or swap with their neighbour to make a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
