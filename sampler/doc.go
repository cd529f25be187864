// Package sampler decides which rows, in which order, for which rank; no I/O, no Arrow, no clock.
//
// Everything here is arithmetic: the same data and the same request give the same rows in the same order on any
// machine, after any restart, for ever. Resuming is therefore a number, and a plan has a name that two gateways agree
// on without talking: its hash.
//
// A [Plan] on the [Shard] values of a snapshot makes an [Order], the same for all epochs; that makes the [Epoch] values,
// which all streams of the plan share. An epoch says which blocks its windows hold ([Epoch.Pieces]), and an open
// [Window] says which row of which block stands at each of its places. A [Schedule] cuts the positions of the epochs
// into steps, and [Epoch.Runs] says which places of which windows a rank takes of a step. docs/order.md is the whole
// algorithm, for those who want to derive an order without this code.
//
// # The bytes of a plan hash
//
// SHA-256 over the fields below, one after the other, integers little-endian and unsigned:
//
//	14 bytes  "headrace plan" and one zero byte
//	u32       version of the order algorithm: 1
//	u32       length of the snapshot's name, then its bytes: the identity in lower-case hex
//	u64       number of shards, then one u64 for each: their numbers in the snapshot, ascending
//	u8        split: 0 without one; 1, then u64 seed, u32 from, u32 to
//	u8        shuffle: 0 none, 1 window, 2 full
//	u64       window_blocks as resolved; 0 unless shuffle is window
//	u64       groups; 1 without a shuffle
//	u64       seed; 0 without a shuffle
//
// Nothing else decides the order, so nothing else is hashed: not the epoch, the batch size, ranks, workers, columns or
// the tail. Plans in stored order have shuffle 0, window_blocks 0, groups 1 and seed 0.
//
// # Receipts
//
// Every row of a snapshot has a 64-bit fingerprint, mix64 = SplitMix64's finaliser of k + (row+1)·0x9e3779b97f4a7c15
// mod 2⁶⁴, where row is its number in the snapshot and k is the first 8 bytes, little-endian, of the SHA-256 of
// "headrace sum 1", a zero byte and the snapshot's identity in hex. A [Sum] adds fingerprints modulo 2¹²⁸: order and
// grouping do not matter, so clients add up what they committed and compare with the plan.
package sampler
