package feed

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/headrace/headrace/sampler"
	"github.com/headrace/headrace/storage/frame"
)

// Receipt closes an epoch: what the stream gave out of it since its first step. Dropped rows are the epoch's.
type Receipt struct {
	Rows, Steps, Padded, Dropped int64
	Sum                          sampler.Sum
}

// Batch is a stream's share of one step. Release gives its memory back.
type Batch struct {
	Pieces  []Piece // usually one, of no rows when the share is empty
	Step    int64   // counted from the origin of the schedule
	Epoch   int64   // of its rows
	Rows    int64
	After   sampler.Place // after the step
	Sum     sampler.Sum   // of its rows, padded ones left out
	Wait    Wait          // for data
	Receipt *Receipt      // with the stream's last batch of an epoch

	joined int // how many of the first pieces were joined, or were too large for it
}

// Wait is for how long a batch waited for data. Of the total, some was for blocks to come out of the store, some for the
// decoder; what is left over was for memory, or for blocks that other streams had asked for.
type Wait struct{ Total, Store, Decode time.Duration }

// Release gives back the leases of all pieces.
func (b *Batch) Release() {
	for _, p := range b.Pieces {
		p.Lease.Release()
	}
	b.Pieces = nil
}

// Piece is a record batch with the lease that keeps its memory alive.
type Piece struct {
	Record arrow.RecordBatch
	Lease  *frame.Lease
	rows   []rowRun
	sums   sampler.Summer
	sliced bool // out of a block that windows share
}

// rowRun is rows that follow each other in the snapshot.
type rowRun struct {
	row, n int64
	padded bool // they repeat rows of the epoch
}

// Sum adds the fingerprints of the piece's rows [from, to), padded ones left out.
func (p Piece) Sum(from, to int64) sampler.Sum {
	var sum sampler.Sum
	for _, r := range p.rows {
		if to <= 0 {
			break
		}
		a, b := max(from, 0), min(to, r.n)
		if a < b && !r.padded {
			sum = p.sums.AddRange(sum, r.row+a, b-a)
		}
		from, to = from-r.n, to-r.n
	}
	return sum
}

// appendRun adds rows to the list, to the last run where they continue it.
func appendRun(runs []rowRun, r rowRun) []rowRun {
	if i := len(runs) - 1; i >= 0 && runs[i].row+runs[i].n == r.row && runs[i].padded == r.padded {
		runs[i].n += r.n
		return runs
	}
	return append(runs, r)
}

// cutRuns cuts a list after n rows.
func cutRuns(runs []rowRun, n int64) (first, second []rowRun) {
	for i, r := range runs {
		if n < r.n {
			first = append(append([]rowRun{}, runs[:i]...), rowRun{r.row, n, r.padded})
			second = append([]rowRun{{r.row + n, r.n - n, r.padded}}, runs[i+1:]...)
			return first, second
		}
		n -= r.n
	}
	return runs, nil
}
