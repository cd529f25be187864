package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The pace of the collector: by how many percent what is live may grow before the heap is collected again.
const (
	leastGrowth = 100 // Go's own
	mostGrowth  = 400 // more gains nothing that can be measured
)

// paceHeap lets the heap grow into its share of the memory, in bytes, before it is collected. Little of the gateway's data
// lives there, but decoders leave much garbage: at Go's own pace so small a heap is collected many times a second. A heap
// that has outgrown its share is collected at Go's own pace. GOGC in the environment has the last word.
func paceHeap(share int64) {
	if os.Getenv("GOGC") == "" {
		pace(share, 0)
	}
}

// pace sets the growth by what lives now, and again after every collection.
func pace(share int64, before int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	now := growth(share, int64(live[0].Value.Uint64()))
	if now != before { // setting it stops the world
		debug.SetGCPercent(now)
	}
	runtime.AddCleanup(new(*int), func(share int64) { pace(share, now) }, share)
}

// growth is the percentage that takes so many live bytes up to the share.
func growth(share, live int64) int {
	return int(min(max(100*share/max(live, 1)-100, leastGrowth), mostGrowth))
}

// limitHeap sets the memory limit of the Go runtime to the heap's share and the bytes that streams are charged for on the
// heap, now none and later what the function is told. GOMEMLIMIT in the environment has the last word.
func limitHeap(share int64) (charged func(int64)) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return func(int64) {}
	}
	charged = func(n int64) { debug.SetMemoryLimit(share + n) }
	charged(0)
	return charged
}
