package shm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Messages of all sizes arrive as they are, in order; those that are too large are told to come over the wire.
func TestMessagesArrive(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	meta := `{"cursor":"hr1:0:1"}`
	for i, size := range []int{1, 0, 63, 64, 65, 1 << 20, Stride - 64, Stride - 63, 1, Stride, 4096} {
		for _, meta := range []string{meta, "", meta + string(bytes.Repeat([]byte{'x'}, 64-len(meta))), meta + string(bytes.Repeat([]byte{'x'}, 65))} {
			message := bytesOf(uint64(i), size)
			start := (len(meta) + 63) / 64 * 64
			fits := start+size <= Stride
			if done := put(t, r, meta, message); done != fits {
				t.Fatalf("%d bytes behind %d: %v", size, len(meta), done)
			}
			n := c.next(t)
			if !fits {
				if n != (notice{Slot: Wire}) {
					t.Errorf("%+v of what is too large", n)
				}
				continue
			}
			gotMeta, got := c.message(n)
			if n.Meta != uint32(len(meta)) || n.Size != uint64(size) || string(gotMeta) != meta || !bytes.Equal(got, message) {
				t.Errorf("%d bytes behind %d: %+v", size, len(meta), n)
			}
			c.taken(t, n)
			c.back(t, n)
		}
	}
}

// Of the slots that were given back, the one that was given back last is used first.
func TestSlotsAreUsedAgain(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	var out []notice
	for range 5 {
		put(t, r, "", bytesOf(1, 5000))
		out = append(out, c.next(t))
	}
	for _, i := range []int{2, 0, 4} {
		c.taken(t, out[i])
		c.back(t, out[i])
	}
	if err := r.hear(true); err != nil { // a stream hears of it when it needs a slot
		t.Fatal(err)
	}
	await(t, "three are given back", func() bool { _ = r.hear(false); return r.unread == 2 })
	for _, i := range []int{4, 0, 2} {
		put(t, r, "", bytesOf(2, 5000))
		if n := c.next(t); n.Slot != out[i].Slot {
			t.Errorf("slot %d, want %d", n.Slot, out[i].Slot)
		}
	}
}

// putting puts from a goroutine of its own.
func putting(r *Ring, n int) chan error {
	done := make(chan error, 1)
	go func() {
		ok, err := r.Put(nil, n, func([]byte) {})
		if err == nil && !ok {
			err = errors.New("over the wire")
		}
		done <- err
	}()
	return done
}

// waits fails if something ends too early.
func waits(t *testing.T, done chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatal("did not wait: ", err)
	case <-time.After(30 * time.Millisecond):
	}
}

// While messages are not taken and no slot is free, the stream waits; what the client keeps it does not wait for.
func TestPutWaitsForMessagesToBeTaken(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	var out []notice
	for range Slots {
		put(t, r, "m", bytesOf(1, 100))
		out = append(out, c.next(t))
	}
	done := putting(r, 100)
	waits(t, done)
	for _, n := range out[1:] {
		c.taken(t, n)
	}
	waits(t, done) // one is left to be taken
	c.back(t, out[3])
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := c.next(t); n.Slot != out[3].Slot {
		t.Errorf("%+v", n)
	}
	c.tell(t, byte(out[0].Slot)|taken, byte(out[3].Slot)|taken)
	if put(t, r, "m", bytesOf(1, 100)) {
		t.Error("there is no slot")
	}
	if n := c.next(t); n.Slot != Wire {
		t.Errorf("%+v", n)
	}
	c.back(t, out[0])
	await(t, "the slot is back", func() bool { return put(t, r, "m", bytesOf(1, 100)) })
	for n := c.next(t); n.Slot == Wire; n = c.next(t) {
	}
}

// Who waits for all to be taken does so once none is left.
func TestSpare(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	var out []notice
	for range 3 {
		put(t, r, "m", bytesOf(1, 1<<20))
		out = append(out, c.next(t))
	}
	done := make(chan error, 1)
	go func() { done <- r.Spare() }()
	waits(t, done)
	c.tell(t, byte(out[0].Slot)|taken, byte(out[0].Slot), byte(out[1].Slot), byte(out[2].Slot)|taken)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	page := int64(unix.Getpagesize())
	if want := 1<<20 + page; h.charged() != want || c.blocks(t) != want {
		t.Errorf("%d bytes are charged, %d in use, want %d", h.charged(), c.blocks(t), want)
	}
	c.back(t, out[2])
	await(t, "all is back", func() bool { return r.Spare() == nil && h.charged() == 0 && c.blocks(t) == 0 })
}

// The end of a stream's call ends what waits for its client.
func TestTheEndOfACallEndsWaiting(t *testing.T) {
	for name, fill := range map[string]func(*Ring, *client) error{
		"for a slot": func(r *Ring, _ *client) error {
			for {
				if _, err := r.Put(nil, 100, func([]byte) {}); err != nil {
					return err
				}
			}
		},
		"for notices to be read": func(r *Ring, _ *client) error {
			for {
				if _, err := r.Put(nil, Stride+1, nil); err != nil {
					return err
				}
			}
		},
		"for all to be taken": func(r *Ring, _ *client) error {
			if _, err := r.Put(nil, 100, func([]byte) {}); err != nil {
				return err
			}
			return r.Spare()
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, 1<<30)
			ctx, cancel := context.WithCancel(t.Context())
			r, c := h.ringUntil(ctx, t)
			done := make(chan error, 1)
			go func() { done <- fill(r, c) }()
			waits(t, done)
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			r.End()
			c.close()
			await(t, "nothing is charged", func() bool { return h.charged() == 0 })
		})
	}
}

// A client that closes its end is gone, whatever the stream is about to do.
func TestClientsThatGo(t *testing.T) {
	for name, use := range map[string]func(*Ring) error{
		"put":   func(r *Ring) error { _, err := r.Put(nil, 100, func([]byte) {}); return err },
		"wire":  func(r *Ring) error { _, err := r.Put(nil, Stride+1, nil); return err },
		"spare": (*Ring).Spare,
	} {
		h := start(t, 1<<30)
		r, c := h.ring(t)
		put(t, r, "m", bytesOf(1, 100))
		c.close()
		if err := use(r); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		r.End()
		await(t, "nothing is charged", func() bool { return h.charged() == 0 })
	}
}

// A client that goes while it is waited for ends the wait.
func TestClientsThatGoWhileTheyAreWaitedFor(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	for range Slots {
		put(t, r, "m", bytesOf(1, 100))
	}
	done := putting(r, 100)
	waits(t, done)
	c.close()
	if err := <-done; !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	r.End()
}

// What cannot be ends the stream, and nothing else.
func TestClientsThatTellNonsense(t *testing.T) {
	for name, events := range map[string][]byte{
		"a slot too far": {Slots}, "one much too far": {0x7f}, "taken too far": {0x80 | Slots}, "all ones": {0xff},
		"given back though not out": {1}, "taken though not out": {1 | taken}, "taken twice": {taken, taken},
		"given back twice": {0, 0}, "taken when given back": {0, taken},
	} {
		h := start(t, 1<<30)
		r, c := h.ring(t)
		put(t, r, "m", bytesOf(1, 100))
		c.tell(t, events...)
		if err := r.Spare(); !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", name, err)
		}
		r.End()
		c.close()
		await(t, "nothing is charged", func() bool { return h.charged() == 0 })
	}
}

// The charges are whole pages of what is used, and no more than the most that a ring takes.
func TestCharges(t *testing.T) {
	page := int64(unix.Getpagesize())
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	want := int64(0)
	for _, size := range []int64{1, page, page + 1, 0, 3*page - 64} {
		put(t, r, "m", bytesOf(1, int(size)))
		want += (64 + size + page - 1) / page * page
		if h.charged() != want || c.blocks(t) != want {
			t.Errorf("%d bytes are charged, %d in use, want %d", h.charged(), c.blocks(t), want)
		}
	}
}

// A ring takes so many bytes, or three messages; the client waits for no more.
func TestARingTakesSoMuch(t *testing.T) {
	for size, want := range map[int]int{12 << 20: 3, 5 << 20: 6, Stride - 64: 3, 1 << 10: 16} {
		h := start(t, 1<<30)
		r, c := h.ring(t)
		n := 0
		for n <= want {
			done, err := r.Put([]byte("m"), size, func([]byte) {})
			if err != nil {
				t.Fatal(err)
			}
			notice := c.next(t)
			if !done {
				break
			}
			n++
			c.taken(t, notice) // and kept
		}
		if n != want {
			t.Errorf("%d messages of %d bytes were put, want %d", n, size, want)
		}
		if most := max(32<<20, 3*int64(size+4096)); h.charged() > most {
			t.Errorf("%d bytes are charged, more than %d", h.charged(), most)
		}
		r.End()
		c.close()
	}
}

// Messages that grow get the memory of slots that have become too small for them.
func TestLargerMessagesFollow(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	for _, messages := range []struct{ n, size int }{{10, 3 << 20}, {3, 9 << 20}, {5, 1 << 20}, {3, 40 << 20}, {3, 64 << 20}} {
		var out []notice
		size := messages.size
		for range messages.n {
			if !put(t, r, "m", bytesOf(1, size)) {
				t.Fatalf("no memory for %d bytes, %d are charged", size, h.charged())
			}
			out = append(out, c.next(t))
		}
		for _, n := range out {
			c.taken(t, n)
			c.back(t, n)
		}
	}
}

// Where the ledger has no more, messages go over the wire, but for those that can wait for what is on its way.
func TestALedgerWithoutMemory(t *testing.T) {
	h := start(t, 4<<20)
	r, c := h.ring(t)
	defer r.End()
	put(t, r, "m", bytesOf(1, 3<<20))
	first := c.next(t)
	done := putting(r, 2<<20)
	waits(t, done)
	c.taken(t, first)
	if err := <-done; err == nil || err.Error() != "over the wire" {
		t.Error(err)
	}
	if n := c.next(t); n.Slot != Wire {
		t.Errorf("%+v", n)
	}
	c.back(t, first)
	await(t, "it has room again", func() bool { return put(t, r, "m", bytesOf(1, 2<<20)) })
	if h.charged() != 3<<20+4096 {
		t.Errorf("%d bytes are charged", h.charged())
	}
}

// What a client still uses when the stream ends stays as it is and stays charged, and nothing else does, whatever ended the
// stream, until it gives that back.
func TestWhatIsUsedOutlivesTheStream(t *testing.T) {
	for name, ends := range map[string]bool{"its end": false, "the end of its call": true} {
		t.Run(name, func(t *testing.T) {
			h := start(t, 1<<30)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, c := h.ringUntil(ctx, t)
			var out []notice
			for i := range 4 {
				put(t, r, "m", bytesOf(uint64(i), 1<<20))
				out = append(out, c.next(t))
			}
			put(t, r, "m", bytesOf(4, 1<<20)) // the client has yet to look at it
			c.tell(t, byte(out[0].Slot)|taken, byte(out[1].Slot), byte(out[2].Slot)|taken)
			if ends {
				cancel()
			}
			r.End()
			unread := c.next(t)
			if _, err := c.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the client is told of more: %v", err)
			}
			c.taken(t, unread)
			c.back(t, out[0])
			c.back(t, out[3])
			message := int64(1<<20 + unix.Getpagesize())
			await(t, "two are left", func() bool { return h.charged() == 2*message })
			await(t, "their memory is left", func() bool { return c.blocks(t) == 2*message })
			for i, n := range map[uint64]notice{2: out[2], 4: unread} {
				if _, got := c.message(n); !bytes.Equal(got, bytesOf(i, 1<<20)) {
					t.Errorf("message %d is not what it was", i)
				}
			}
			c.tell(t, byte(out[2].Slot), byte(unread.Slot))
			await(t, "nothing is charged", func() bool { return h.charged() == 0 })
		})
	}
}

// What a client uses when the gateway goes is the client's.
// What a client still has mapped when it closes its socket is paid for by nobody, so it is there no more.
func TestAClientThatGoesKeepsNoMemory(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	for range 3 {
		put(t, r, "m", bytesOf(1, 1<<20))
		c.taken(t, c.next(t))
	}
	r.End()
	if c.blocks(t) < 3<<20 {
		t.Fatal("the client has nothing")
	}
	c.conn.Close()
	await(t, "the memory", func() bool { return h.charged() == 0 && c.blocks(t) == 0 })
}

func TestAllRingsTogetherTakeSoMuch(t *testing.T) {
	h := start(t, 1<<30)
	h.most = 5 << 20
	message := bytesOf(1, 2<<20)
	first, c := h.ring(t)
	second, d := h.ring(t)
	for i, want := range []struct {
		ring *Ring
		c    *client
		slot bool
	}{{first, c, true}, {second, d, true}, {first, c, false}, {second, d, false}} {
		if got := put(t, want.ring, "m", message); got != want.slot {
			t.Errorf("message %d: in a slot %v, want %v", i, got, want.slot)
		}
		if n := want.c.next(t); want.slot {
			want.c.taken(t, n)
		}
	}
	second.End()
	d.close()
	await(t, "room", func() bool { return h.paid.Load() < 4<<20 })
	if !put(t, first, "m", message) {
		t.Error("what one ring gave back another cannot have")
	}
	first.End()
}

func TestWhatIsUsedOutlivesTheHost(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	put(t, r, "m", bytesOf(7, 1<<20))
	n := c.next(t)
	c.taken(t, n)
	r.End()
	h.Close()
	if h.charged() != 0 {
		t.Errorf("%d bytes are charged", h.charged())
	}
	if _, got := c.message(n); !bytes.Equal(got, bytesOf(7, 1<<20)) {
		t.Error("the message is not what it was")
	}
}

// Nothing that a client does to the file hurts the gateway.
func TestTheFileIsSafe(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	put(t, r, "m", bytesOf(1, 1<<20))
	first := c.next(t)
	for _, size := range []int64{0, 1, Slots*Stride - 1, Slots*Stride + 1} {
		if err := unix.Ftruncate(c.fd, size); !errors.Is(err, unix.EPERM) {
			t.Errorf("to %d bytes: %v", size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(c.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v", err)
	}
	_ = unix.Fallocate(c.fd, 0, 0, Slots*Stride+1<<20)
	if err := unix.Fallocate(c.fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, 0, Slots*Stride); err != nil {
		t.Fatal(err)
	}
	for i := range Slots { // into slots that are not the client's
		copy(c.mem[i*Stride:], "rubbish")
	}
	c.taken(t, first)
	c.back(t, first)
	for i := range Slots + 1 {
		put(t, r, "meta", bytesOf(uint64(i), 2<<20))
		n := c.next(t)
		if meta, got := c.message(n); string(meta) != "meta" || !bytes.Equal(got, bytesOf(uint64(i), 2<<20)) {
			t.Errorf("message %d is not what was put", i)
		}
		_ = unix.Fallocate(c.fd, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE, int64(n.Slot)*Stride, Stride)
		c.taken(t, n)
		c.back(t, n)
	}
	if err := r.Spare(); err != nil {
		t.Error(err)
	}
}

// The memory of one slot is that slot's.
func TestSlotsDoNotOverlap(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	defer r.End()
	var out []notice
	for i := range 3 {
		put(t, r, "m", bytesOf(uint64(i), Stride-64))
		out = append(out, c.next(t))
	}
	slots := []uint32{out[0].Slot, out[1].Slot, out[2].Slot}
	slices.Sort(slots)
	if len(slices.Compact(slots)) != 3 {
		t.Fatalf("%v", slots)
	}
	for i, n := range out {
		if _, got := c.message(n); !bytes.Equal(got, bytesOf(uint64(i), Stride-64)) {
			t.Errorf("message %d is not what was put", i)
		}
	}
}
