package shm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/headrace/headrace/storage/budget"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a host and a ledger, of which nothing may be in use in the end.
type house struct {
	*Host
	ledger *budget.Ledger
}

func start(t testing.TB, limit int64) *house {
	t.Helper()
	return startPatient(t, limit, patience)
}

func startPatient(t testing.TB, limit int64, patience time.Duration) *house {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	h := &house{Host: host(l, math.MaxInt64, patience), ledger: budget.New(budget.Options{Limit: limit})}
	t.Cleanup(func() {
		h.Close()
		if s := h.ledger.Stats(); s.Reserved != 0 || s.Grants != 0 || len(h.offers) != 0 || len(h.conns) != 0 {
			t.Errorf("left: %+v, %d offers, %d connections", s, len(h.offers), len(h.conns))
		}
	})
	return h
}

func (h *house) charged() int64 { return h.ledger.Stats().Used[budget.Batches] }

// client is the other end of a ring.
type client struct {
	conn *net.UnixConn
	fd   int
	mem  []byte
}

// connect shows a key. The error is what a refusal looks like.
func (h *house) connect(t rapid.TB, key string) (*client, error) {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, h.listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	c := &client{conn: conn, fd: -1}
	if _, err := conn.Write([]byte(key)); err != nil {
		c.close()
		return nil, err
	}
	greeting, rights := make([]byte, 24), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := conn.ReadMsgUnix(greeting, rights)
	if err != nil || n == 0 {
		c.close()
		return nil, errors.Join(io.EOF, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%d control messages, %v", len(messages), err)
	}
	descriptors, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(descriptors) != 1 {
		t.Fatalf("%d descriptors, %v", len(descriptors), err)
	}
	want := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte("hrshm1\x00\x00"), Stride), Slots)
	if !bytes.Equal(greeting[:n], want) {
		t.Errorf("greeting %x, want %x", greeting[:n], want)
	}
	c.fd = descriptors[0]
	if c.mem, err = unix.Mmap(c.fd, 0, Slots*Stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	return c, nil
}

// close ends the client. More calls do nothing.
func (c *client) close() {
	c.conn.Close()
	if c.fd >= 0 {
		_ = unix.Munmap(c.mem)
		_ = unix.Close(c.fd)
		c.fd = -1
	}
}

// notice is what the gateway tells of a message.
type notice struct {
	Slot, Meta uint32
	Size       uint64
}

func (c *client) next(t rapid.TB) notice {
	t.Helper()
	var n notice
	_ = c.conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if err := binary.Read(c.conn, binary.LittleEndian, &n); err != nil {
		t.Fatal("no notice: ", err)
	}
	return n
}

// message is a slot's metadata and message; they lie in the slot.
func (c *client) message(n notice) (meta, message []byte) {
	slot := c.mem[int(n.Slot)*Stride:][:Stride]
	return slot[:n.Meta], slot[(n.Meta+63)/64*64:][:n.Size]
}

func (c *client) tell(t rapid.TB, events ...byte) {
	t.Helper()
	if _, err := c.conn.Write(events); err != nil {
		t.Fatal(err)
	}
}

func (c *client) taken(t rapid.TB, n notice) { t.Helper(); c.tell(t, byte(n.Slot)|0x80) }
func (c *client) back(t rapid.TB, n notice)  { t.Helper(); c.tell(t, byte(n.Slot)) }

// blocks are the bytes that the system has for the file.
func (c *client) blocks(t rapid.TB) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(c.fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

// guest is a client that has shown the key of an offer.
func (h *house) guest(t rapid.TB) (key string, c *client) {
	t.Helper()
	key, err := h.Offer("t")
	if err != nil {
		t.Fatal(err)
	}
	if c, err = h.connect(t, key); err != nil {
		t.Fatal(err)
	}
	return key, c
}

// join makes a ring and its client.
func (h *house) join(t rapid.TB) (*Ring, *client) {
	t.Helper()
	key, c := h.guest(t)
	r := h.Join(key, "t")
	if r == nil {
		t.Fatal("the key is good for nothing")
	}
	one := make([]byte, 1)
	if _, err := io.ReadFull(c.conn, one); err != nil || one[0] != 1 {
		t.Fatalf("%x, %v", one, err)
	}
	return r, c
}

// ring is a ring in use by a stream without an end.
func (h *house) ring(t testing.TB) (*Ring, *client) {
	t.Helper()
	return h.ringUntil(context.WithoutCancel(t.Context()), t)
}

func (h *house) ringUntil(ctx context.Context, t testing.TB) (*Ring, *client) {
	t.Helper()
	r, c := h.join(t)
	grant, err := h.ledger.Admit(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(grant.Close)
	t.Cleanup(c.close)
	r.Begin(ctx, grant)
	return r, c
}

// noise is what messages are cut from.
var noise = func() []byte {
	b, r := make([]byte, 1<<18), rand.New(rand.NewPCG(1, 2))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}()

// bytesOf are n bytes that tell a message from others.
func bytesOf(seed uint64, n int) []byte {
	b := make([]byte, 0, n)
	for from := seed * 4099 % uint64(len(noise)); len(b) < n; from = 0 {
		b = append(b, noise[from:][:min(len(noise[from:]), n-len(b))]...)
	}
	return b
}

func put(t rapid.TB, r *Ring, meta string, message []byte) bool {
	t.Helper()
	done, err := r.Put([]byte(meta), len(message), func(to []byte) {
		if copy(to, message) != len(to) {
			t.Fatalf("%d bytes to fill, not %d", len(to), len(message))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// await waits for something that is to come.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("in vain: ", what)
		}
	}
}
