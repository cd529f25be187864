package shm

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
)

// model is what a client and its stream know of a ring.
type model struct {
	*Ring
	c     *client
	house *house
	limit int64

	seed    uint64
	untaken []held // oldest first
	kept    []held
}

// held is a message that the client has not given back.
type held struct {
	notice
	seed uint64
}

// Whatever a stream and a client that plays by the rules do, messages arrive in order and stay as they are while they are in
// use, and the books are right.
func TestRingsProperty(t *testing.T) {
	h := start(t, 1<<40)
	rapid.Check(t, func(t *rapid.T) {
		m := &model{limit: rapid.SampledFrom([]int64{1 << 40, 16 << 20, 3 << 20}).Draw(t, "limit")}
		m.house = &house{Host: h.Host, ledger: budget.New(budget.Options{Limit: m.limit})}
		m.Ring, m.c = m.house.join(t)
		defer m.c.close()
		grant, err := m.house.ledger.Admit(context.Background(), 0)
		if err != nil {
			t.Fatal(err)
		}
		m.Begin(context.Background(), grant)
		t.Repeat(map[string]func(*rapid.T){"": m.check, "put": m.put, "put 2": m.put, "take": m.take, "give back": m.giveBack})
		m.End()
		grant.Close()
		for len(m.untaken)+len(m.kept) > 0 {
			m.give(t)
		}
		_, _ = io.Copy(io.Discard, m.c.conn) // until the gateway hangs up
		for end := time.Now().Add(20 * time.Second); m.house.charged() > 0 && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if s := m.house.ledger.Stats(); s.Reserved != 0 || s.Grants != 0 {
			t.Fatalf("left: %+v", s)
		}
	})
}

// put puts a message, if the stream would not wait for the client: that is this test itself.
func (m *model) put(t *rapid.T) {
	size := rapid.OneOf(rapid.IntRange(0, 10_000), rapid.IntRange(0, 200_000), rapid.IntRange(0, 9<<20)).Draw(t, "size")
	meta := rapid.StringN(1, 200, 300).Draw(t, "meta")
	m.seed++
	message := bytesOf(m.seed, size)
	if !m.hasRoom(int64((len(meta)+63)/64*64 + size)) {
		for len(m.untaken) > 0 {
			m.take(t)
		}
	}
	done := put(t, m.Ring, meta, message)
	n := m.c.next(t)
	if done != (n.Slot != Wire) {
		t.Fatalf("%v, %+v", done, n)
	}
	if !done {
		if free := Slots - len(m.untaken) - len(m.kept); free == Slots && int64(size+400+4096) < m.limit {
			t.Fatalf("%d bytes have no place, %d are charged", size, m.house.charged())
		}
		return
	}
	if got, _ := m.c.message(n); string(got) != meta || n.Size != uint64(size) {
		t.Fatalf("%+v, %q", n, got)
	}
	m.untaken = append(m.untaken, held{n, m.seed})
}

// hasRoom tells whether a free slot, as far as the stream knows, has room for n bytes.
func (m *model) hasRoom(n int64) bool {
	for _, i := range m.free {
		if m.slots[i].paid >= n {
			return true
		}
	}
	return false
}

func (m *model) take(t *rapid.T) {
	if len(m.untaken) > 0 {
		m.c.taken(t, m.untaken[0].notice)
		m.kept, m.untaken = append(m.kept, m.untaken[0]), m.untaken[1:]
	}
}

// giveBack gives any message back, or the next one without a word about that it was taken.
func (m *model) giveBack(t *rapid.T) {
	if len(m.untaken)+len(m.kept) > 0 {
		m.give(t)
	}
}

func (m *model) give(t *rapid.T) {
	i := rapid.IntRange(0, len(m.kept)+min(len(m.untaken), 1)-1).Draw(t, "which")
	var one held
	if i == len(m.kept) {
		one, m.untaken = m.untaken[0], m.untaken[1:]
	} else {
		one = m.kept[i]
		m.kept = append(m.kept[:i:i], m.kept[i+1:]...)
	}
	if _, got := m.c.message(one.notice); !bytes.Equal(got, bytesOf(one.seed, int(one.Size))) {
		t.Fatalf("message %d is not what was put: %+v", one.seed, one.notice)
	}
	m.c.back(t, one.notice)
}

// check compares the books. The stream knows what the client told once it listens.
func (m *model) check(t *rapid.T) {
	if err := m.hear(false); err != nil {
		t.Fatal(err)
	}
	consistent(t, m.Ring)
	if m.unread != len(m.untaken) || len(m.free) != Slots-len(m.untaken)-len(m.kept) {
		t.Fatalf("%d are to be taken, %d slots free; want %d, and %d are kept", m.unread, len(m.free), len(m.untaken), len(m.kept))
	}
	page, charged := int64(unix.Getpagesize()), m.house.charged()
	if most := max(32<<20, 3*int64(9<<20+512)+3*page); charged != m.paid || charged > most || charged != m.c.blocks(t) {
		t.Fatalf("%d bytes are charged, %d paid, %d in use, %d allowed", charged, m.paid, m.c.blocks(t), most)
	}
	for _, one := range append(m.untaken[:len(m.untaken):len(m.untaken)], m.kept...) {
		if _, got := m.c.message(one.notice); !bytes.Equal(got[:min(len(got), 64)], bytesOf(one.seed, int(one.Size))[:min(len(got), 64)]) {
			t.Fatalf("message %d is not what was put", one.seed)
		}
	}
}

// consistent looks at the books of a ring.
func consistent(t rapid.TB, r *Ring) {
	t.Helper()
	var paid int64
	var unread, out int
	free := [Slots]bool{}
	for _, i := range r.free {
		if free[i] || r.slots[i].out {
			t.Fatalf("slot %d is free twice, or out as well", i)
		}
		free[i] = true
	}
	for i, s := range r.slots {
		paid += s.paid
		if s.unread {
			unread++
		}
		if s.out {
			out++
		}
		if s.unread && !s.out || s.out == free[i] || s.paid%int64(unix.Getpagesize()) != 0 {
			t.Fatalf("slot %d: %+v", i, s)
		}
	}
	if paid != r.paid || unread != r.unread || out+len(r.free) != Slots {
		t.Fatalf("paid %d of %d, %d of %d to be taken, %d out, %d free", paid, r.paid, unread, r.unread, out, len(r.free))
	}
}

// Whatever a client tells, the stream goes on or ends.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{"", "\x80\x00", "\x80\x81\x00\x01", "\x80\x80", "\x00\x00", "\x10", "\xff", "\x02\x82", "\x03"} {
		f.Add([]byte(seed))
	}
	h := start(f, 1<<30)
	f.Fuzz(func(t *testing.T, told []byte) {
		if len(told) > 4096 {
			return
		}
		r, c := h.ring(t)
		for range 3 {
			put(t, r, "m", bytesOf(1, 100))
		}
		c.tell(t, told...)
		for range len(told)/256 + 1 {
			if r.hear(false) != nil {
				break
			}
			consistent(t, r)
		}
		consistent(t, r)
		c.close()
		r.End()
		await(t, "nothing is charged", func() bool { return h.charged() == 0 })
	})
}
