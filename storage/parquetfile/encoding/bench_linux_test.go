package encoding

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// Each kernel decodes a page of about 1 MiB again and again; MB/s are of what
// comes out. BenchmarkCopy is what the machine can do at most.

const pageValues = 1 << 17

// bench measures by the processor's time, so that what else the machine does
// counts less. MB/s by the clock are what Go prints beside it.
func bench(b *testing.B, size int, decode func() error) {
	b.Helper()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := spent(b)
	for b.Loop() {
		if err := decode(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e9/(spent(b)-before).Seconds(), "GB/cpu-s")
}

// spent is the processor's time that this thread has had.
func spent(b *testing.B) time.Duration {
	const thread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(thread, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkCopy(b *testing.B) {
	src, dst := make([]byte, pageValues*8), make([]byte, pageValues*8)
	bench(b, len(dst), func() error { copy(dst, src); return nil })
}

func BenchmarkUnpack32(b *testing.B) {
	for _, width := range []int{1, 2, 3, 8, 10, 11, 16, 20, 27, 32} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			src := make([]byte, pageValues*width/8+8)
			dst := make([]uint32, pageValues)
			bench(b, 4*len(dst), func() error { unpack32(dst, src, 0, width); return nil })
		})
	}
}

func BenchmarkHybrid(b *testing.B) {
	for _, width := range []int{1, 10, 16} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			page := hybrid(nil, random(pageValues, 1<<width), width)
			dst := make([]uint32, pageValues)
			bench(b, 4*len(dst), func() error {
				var h Hybrid
				if err := h.Reset(page, width); err != nil {
					return err
				}
				return h.Decode(dst)
			})
		})
	}
}

func BenchmarkDictionaryFixed(b *testing.B) {
	for _, width := range []int{4, 8, 12, 16} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			page := hybrid([]byte{10}, random(pageValues, 1000), 10)
			dict, dst := make([]byte, 1000*width), make([]byte, pageValues*width)
			indices := make([]uint32, 1024)
			bench(b, len(dst), func() error {
				var h Hybrid
				if err := h.ResetIndices(page); err != nil {
					return err
				}
				for out := range slices.Chunk(dst, len(indices)*width) {
					if err := h.Decode(indices); err != nil {
						return err
					}
					if err := Gather(out, dict, width, indices); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func BenchmarkDelta(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, spread := range []int64{1, 1000, 1 << 20, 1 << 40, 1 << 62} {
		values, x := make([]int64, pageValues), int64(0)
		for i := range values {
			x += rng.Int64N(spread)
			values[i] = x
		}
		page := delta(nil, values, 128, 4)
		b.Run(fmt.Sprint("int64/", spread), func(b *testing.B) {
			bench(b, 8*len(values), func() error {
				var d Delta[int64]
				if err := d.Reset(page); err != nil {
					return err
				}
				return d.Decode(values)
			})
		})
	}
	narrow, x := make([]int32, pageValues), int32(0)
	for i := range narrow {
		x += rng.Int32N(1000)
		narrow[i] = x
	}
	page := delta(nil, narrow, 128, 4)
	b.Run("int32/1000", func(b *testing.B) {
		bench(b, 4*len(narrow), func() error {
			var d Delta[int32]
			if err := d.Reset(page); err != nil {
				return err
			}
			return d.Decode(narrow)
		})
	})
}

func BenchmarkSplit(b *testing.B) {
	for _, width := range []int{2, 4, 8, 16} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			src, dst := make([]byte, pageValues*8), make([]byte, pageValues*8)
			bench(b, len(dst), func() error {
				var s Split
				if err := s.Reset(src, width); err != nil {
					return err
				}
				return s.Decode(dst)
			})
		})
	}
}

// nulls has a bit in ten unset, at random.
func nulls(n int) []byte {
	valid := make([]byte, n/8)
	for i, r := range random(n, 10) {
		if r != 0 {
			valid[i/8] |= 1 << (i % 8)
		}
	}
	return valid
}

func BenchmarkSpread(b *testing.B) {
	valid := nulls(pageValues)
	set := countBits(valid, 0, pageValues)
	for _, width := range []int{1, 2, 4, 8, 16, 1920} {
		n := min(pageValues, pageValues*64/width/8*8)
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			src, buf := make([]byte, pageValues*64), make([]byte, pageValues*64)
			there := countBits(valid, 0, n)
			bench(b, n*width, func() error {
				copy(buf, src[:there*width]) // as values are decoded to the front first
				Spread(buf, width, valid, 0, n)
				return nil
			})
		})
	}
	b.Run("offsets", func(b *testing.B) {
		offsets := make([]int32, pageValues+1)
		for i := range offsets[:set+1] {
			offsets[i] = int32(i)
		}
		dense := slices.Clone(offsets[:set+1])
		bench(b, 4*pageValues, func() error {
			copy(offsets, dense)
			SpreadOffsets(offsets, valid, 0, pageValues)
			return nil
		})
	})
	b.Run("bits", func(b *testing.B) {
		buf := make([]byte, pageValues/8)
		bench(b, len(buf), func() error { SpreadBits(buf, 0, valid, 0, pageValues); return nil })
	})
}

func BenchmarkLevels(b *testing.B) {
	some := random(pageValues, 10)
	for i := range some {
		some[i] = min(1, some[i])
	}
	deep := random(pageValues, 4)
	for name, page := range map[string]struct {
		b    []byte
		most int
	}{
		"all":      {repeatedRun(nil, 1, pageValues, 1), 1},
		"nulls":    {hybrid(nil, some, 1), 1},
		"of three": {hybrid(nil, deep, 2), 3},
	} {
		b.Run(name, func(b *testing.B) {
			valid := make([]byte, pageValues/8)
			bench(b, 8*pageValues, func() error { // as if of int64
				var l Levels
				if err := l.Reset(page.b, page.most); err != nil {
					return err
				}
				_, err := l.Validity(valid, 0, pageValues, page.most)
				return err
			})
		})
	}
}

func BenchmarkRegular(b *testing.B) {
	for _, size := range []int{4, 480} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			n := pageValues / size * size
			levels := make([]uint32, n)
			for i := range levels {
				levels[i] = min(1, uint32(i%size))
			}
			page := hybrid(nil, levels, 1)
			bench(b, 4*n, func() error { // as if of float32
				var l Levels
				if err := l.Reset(page, 1); err != nil {
					return err
				}
				if ok, err := l.Regular(n, size, 0); !ok || err != nil {
					return fmt.Errorf("not regular, %w", err)
				}
				return nil
			})
		})
	}
}

func BenchmarkLists(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for name, empty := range map[string]int{"tokens": 0, "with empty ones and nulls": 10} {
		var rep, def []uint32
		rows := 0
		for len(rep) < pageValues {
			rows++
			if empty > 0 && rng.IntN(empty) == 0 {
				rep, def = append(rep, 0), append(def, rng.Uint32N(2))
				continue
			}
			for i := range 1 + rng.IntN(200) {
				d := uint32(3)
				if empty > 0 && rng.IntN(empty) == 0 {
					d = 2
				}
				rep, def = append(rep, min(1, uint32(i))), append(def, d)
			}
		}
		reps, defs := hybrid(nil, rep, 1), hybrid(nil, def, 2)
		b.Run(name, func(b *testing.B) {
			offsets, valid, items := make([]int32, rows+1), make([]byte, rows/8+1), make([]byte, len(rep)/8+1)
			bench(b, 4*len(rep), func() error { // as if of int32
				var l Lists
				var r, d Levels
				if err := l.Reset(Shape{Most: 3, List: 1, Slot: 2, Item: 3}); err != nil {
					return err
				}
				if err := r.Reset(reps, 1); err != nil {
					return err
				}
				if err := d.Reset(defs, 3); err != nil {
					return err
				}
				l.Page(r, d, len(rep))
				into := ListsInto[int32]{Offsets: offsets, Lists: Bitmap{B: valid}, Items: Bitmap{B: items}}
				_, err := DecodeLists(&l, rows, into)
				return err
			})
		})
	}
}

// words are byte arrays of about size bytes each.
func words(n, size int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([][]byte, n)
	for i := range values {
		values[i] = make([]byte, size-size/8+rng.IntN(size/4+1))
		binary.LittleEndian.PutUint16(values[i][len(values[i])-2:], uint16(rng.Uint32()))
	}
	return values
}

func BenchmarkBytes(b *testing.B) {
	for _, size := range []int{4, 20, 100, 1000} {
		values := words(1<<20/size, size)
		offsets := make([]int32, len(values)+1)
		total := len(slices.Concat(values...))
		data := make([]byte, total)
		decoders := map[string]func() error{}
		page := plain(nil, values)
		decoders["PLAIN"] = func() error {
			var d Bytes[int32]
			d.Reset(page)
			if _, err := d.Measure(len(values)); err != nil {
				return err
			}
			return d.Decode(offsets, data)
		}
		long := lengthed(nil, values)
		decoders["DELTA_LENGTH"] = func() error {
			var d LengthBytes[int32]
			if err := d.Reset(long); err != nil {
				return err
			}
			if _, err := d.Measure(len(values)); err != nil {
				return err
			}
			return d.Decode(offsets, data)
		}
		front := fronted(nil, values)
		var d FrontBytes[int32]
		decoders["DELTA_BYTE_ARRAY"] = func() error {
			if err := d.Reset(front); err != nil {
				return err
			}
			if _, err := d.Measure(len(values)); err != nil {
				return err
			}
			return d.Decode(offsets, data)
		}
		for name, decode := range decoders {
			b.Run(fmt.Sprint(name, "/", size), func(b *testing.B) { bench(b, total, decode) })
		}
	}
}

func BenchmarkDictionaryBytes(b *testing.B) {
	for _, size := range []int{4, 27, 100} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var dict Dictionary
			if err := dict.Reset(plain(nil, words(2000, size)), 2000); err != nil {
				b.Fatal(err)
			}
			page := hybrid([]byte{11}, random(pageValues, 2000), 11)
			indices, offsets := make([]uint32, pageValues), make([]int32, pageValues+1)
			total, _ := dict.Measure(random(pageValues, 2000))
			data := make([]byte, total)
			bench(b, int(total), func() error {
				var h Hybrid
				if err := h.ResetIndices(page); err != nil {
					return err
				}
				if err := h.Decode(indices); err != nil {
					return err
				}
				if _, err := dict.Measure(indices); err != nil {
					return err
				}
				return GatherBytes(&dict, indices, offsets, data)
			})
		})
	}
}

func BenchmarkBooleans(b *testing.B) {
	some := random(pageValues, 2)
	page := hybrid(make([]byte, 4), some, 1)
	binary.LittleEndian.PutUint32(page, uint32(len(page)-4))
	dst := make([]byte, pageValues/8+1)
	b.Run("PLAIN", func(b *testing.B) {
		bench(b, pageValues/8, func() error {
			var d Booleans
			d.Reset(page[:pageValues/8])
			return d.Decode(dst, 3, pageValues)
		})
	})
	b.Run("RLE", func(b *testing.B) {
		bench(b, pageValues/8, func() error {
			var d Booleans
			if err := d.ResetRLE(page); err != nil {
				return err
			}
			return d.Decode(dst, 3, pageValues)
		})
	})
}

func BenchmarkConvert(b *testing.B) {
	wide := make([]int64, pageValues)
	src, dst := make([]byte, pageValues*16), make([]byte, pageValues*16)
	for i := range wide {
		binary.LittleEndian.PutUint32(src[i*12+8:], unixEpoch)
	}
	b.Run("INT96", func(b *testing.B) {
		bench(b, 8*len(wide), func() error { return Timestamps(wide, src[:12*len(wide)]) })
	})
	clear(src)
	b.Run("int32 to int8", func(b *testing.B) {
		bench(b, pageValues, func() error { Narrow(dst[:pageValues], src[:4*pageValues], pageValues); return nil })
	})
	b.Run("int32 to int16", func(b *testing.B) {
		bench(b, 2*pageValues, func() error { Narrow(dst[:2*pageValues], src[:4*pageValues], pageValues); return nil })
	})
	b.Run("decimal128 of 9 bytes", func(b *testing.B) {
		bench(b, len(dst), func() error { return DecimalsOfFixed(dst, 16, src, 9) })
	})
	b.Run("decimal128 of int64", func(b *testing.B) {
		bench(b, len(dst), func() error { return DecimalsOfInts(dst, 16, wide) })
	})
}
