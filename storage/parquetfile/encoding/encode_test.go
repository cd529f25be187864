package encoding

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
)

// The encoders of the tests write what Parquet's writers write, and with the seed's help also what is legal but rare:
// short packed runs, several blocks, widths that are wider than need be.

// packed appends values of width bits each, one behind the other, the lowest bit first.
func packed(b []byte, values []uint64, width int) []byte {
	var word uint64
	have := 0
	for _, v := range values {
		for i := range width {
			word |= v >> i & 1 << have
			if have++; have == 8 {
				b, word, have = append(b, byte(word)), 0, 0
			}
		}
	}
	if have > 0 {
		b = append(b, byte(word))
	}
	return b
}

// packedRun appends one packed run; it is filled up with zeros to a multiple of eight values.
func packedRun(b []byte, values []uint32, width int) []byte {
	groups := (len(values) + 7) / 8
	b = binary.AppendUvarint(b, uint64(groups)<<1|1)
	wide := make([]uint64, groups*8)
	for i, v := range values {
		wide[i] = uint64(v)
	}
	return packed(b, wide, width)
}

// repeatedRun appends n times value.
func repeatedRun(b []byte, value uint32, n, width int) []byte {
	b = binary.AppendUvarint(b, uint64(n)<<1)
	return append(b, binary.LittleEndian.AppendUint32(nil, value)[:(width+7)/8]...)
}

// hybrid appends runs as most writers do: what repeats eight times or more is
// a run of its own, what does not is packed in runs of up to 504 values.
func hybrid(b []byte, values []uint32, width int) []byte {
	var pack []uint32
	flush := func() {
		for part := range slices.Chunk(pack, 504) {
			b = packedRun(b, part, width)
		}
		pack = pack[:0]
	}
	for len(values) > 0 {
		n := 1
		for n < len(values) && values[n] == values[0] {
			n++
		}
		// A packed run that others follow holds a multiple of eight values.
		fill := min(-len(pack)&7, n)
		pack = append(pack, values[:fill]...)
		if values, n = values[fill:], n-fill; n >= 8 {
			flush()
			b = repeatedRun(b, values[0], n, width)
		} else {
			pack = append(pack, values[:n]...)
		}
		values = values[n:]
	}
	flush()
	return b
}

// delta appends values as DELTA_BINARY_PACKED in blocks of size values in so many parts.
func delta[T int32 | int64](b []byte, values []T, size, parts int) []byte {
	b = binary.AppendUvarint(b, uint64(size))
	b = binary.AppendUvarint(b, uint64(parts))
	b = binary.AppendUvarint(b, uint64(len(values)))
	if len(values) == 0 {
		return binary.AppendVarint(b, 0)
	}
	b = binary.AppendVarint(b, int64(values[0]))
	var differences []T
	for i, v := range values[1:] {
		differences = append(differences, v-values[i])
	}
	for block := range slices.Chunk(differences, size) {
		low := slices.Min(block)
		b = binary.AppendVarint(b, int64(low))
		widths, body := make([]byte, parts), []byte(nil)
		i := 0
		for part := range slices.Chunk(block, size/parts) {
			wide, all := make([]uint64, size/parts), uint64(0)
			for j, d := range part {
				wide[j] = uint64(d - low)
				if _, narrow := any(d).(int32); narrow {
					wide[j] = uint64(uint32(d - low))
				}
				all |= wide[j]
			}
			for widths[i] = 0; widths[i] < 64 && all>>widths[i] != 0; widths[i]++ {
			}
			body = packed(body, wide, int(widths[i]))
			i++
		}
		b = append(append(b, widths...), body...)
	}
	return b
}

// plain appends byte arrays, each with its length before it.
func plain(b []byte, values [][]byte) []byte {
	for _, v := range values {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b
}

// lengthed appends byte arrays as DELTA_LENGTH_BYTE_ARRAY.
func lengthed(b []byte, values [][]byte) []byte {
	var sizes []int32
	for _, v := range values {
		sizes = append(sizes, int32(len(v)))
	}
	return append(delta(b, sizes, 128, 4), slices.Concat(values...)...)
}

// fronted appends byte arrays as DELTA_BYTE_ARRAY.
func fronted(b []byte, values [][]byte) []byte {
	var prefixes []int32
	var suffixes [][]byte
	var before []byte
	for _, v := range values {
		n := 0
		for n < min(len(v), len(before)) && v[n] == before[n] {
			n++
		}
		prefixes, suffixes, before = append(prefixes, int32(n)), append(suffixes, v[n:]), v
	}
	return lengthed(delta(b, prefixes, 128, 4), suffixes)
}

// split appends values of width bytes as BYTE_STREAM_SPLIT.
func split(b, values []byte, width int) []byte {
	for k := range width {
		for i := k; i < len(values); i += width {
			b = append(b, values[i])
		}
	}
	return b
}

// random are n values below another one, always the same.
func random(n, below int) []uint32 {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]uint32, n)
	for i := range values {
		values[i] = uint32(rng.IntN(below))
	}
	return values
}
