package shm

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A key is good for one client and one stream, both of its own tenant.
func TestKeys(t *testing.T) {
	h := start(t, 1<<30)
	key, err := h.Offer("t")
	if err != nil {
		t.Fatal(err)
	}
	other, err := h.Offer("t")
	if err != nil || other == key || len(key) != 32 {
		t.Fatalf("%q, %q, %v", key, other, err)
	}
	for _, wrong := range []string{strings.Repeat("0", 32), key[1:] + "g"} {
		if c, err := h.connect(t, wrong); err == nil {
			c.close()
			t.Errorf("%q was taken", wrong)
		}
	}
	if r := h.Join(other, "t"); r != nil {
		t.Error("a ring that nobody has asked for")
	}
	if c, err := h.connect(t, other); err == nil {
		c.close()
		t.Error("a key whose stream went without was taken")
	}
	c, err := h.connect(t, key)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if second, err := h.connect(t, key); err == nil {
		second.close()
		t.Error("a key was taken twice")
	}
	for _, tenant := range []string{"", "u", "T"} {
		if h.Join(key, tenant) != nil {
			t.Errorf("tenant %q joins with a key of another's", tenant)
		}
	}
	if h.Join("", "t") != nil || h.Join(strings.Repeat("0", 32), "t") != nil {
		t.Error("a ring without a key")
	}
	r := h.Join(key, "t")
	if r == nil {
		t.Fatal("the key is good for nothing")
	}
	if h.Join(key, "t") != nil {
		t.Error("a key was good for two streams")
	}
	r.End()
}

// Of many who show a key at once, or come with it, one has the ring.
func TestKeysInAHurry(t *testing.T) {
	h := start(t, 1<<30)
	key, err := h.Offer("t")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	clients, rings := make(chan *client, 8), make(chan *Ring, 8)
	for range 8 {
		all.Go(func() {
			if c, err := h.connect(t, key); err == nil {
				clients <- c
			}
		})
	}
	all.Wait()
	for range 8 {
		all.Go(func() {
			if r := h.Join(key, "t"); r != nil {
				rings <- r
			}
		})
	}
	all.Wait()
	if len(clients) != 1 || len(rings) != 1 {
		t.Fatalf("%d clients, %d streams", len(clients), len(rings))
	}
	(<-rings).End()
	(<-clients).close()
}

// ended tells whether the gateway hangs up on a connection that it has nothing to tell.
func ended(t *testing.T, c *net.UnixConn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := c.Read(make([]byte, 1))
	var late net.Error
	if n != 0 || err == nil || errors.As(err, &late) && late.Timeout() {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// An offer that nobody comes back to ends, whether somebody has shown its key or not.
func TestOffersEnd(t *testing.T) {
	h := startPatient(t, 1<<30, time.Second)
	unseen, err := h.Offer("t")
	if err != nil {
		t.Fatal(err)
	}
	key, c := h.guest(t)
	defer c.close()
	ended(t, c.conn)
	await(t, "no offer stands", func() bool { return !h.stands(unseen) && !h.stands(key) })
	if h.Join(key, "t") != nil || h.Join(unseen, "t") != nil {
		t.Error("it is too late")
	}
	if c, err := h.connect(t, unseen); err == nil {
		c.close()
		t.Error("it is too late")
	}
	if c.blocks(t) != 0 {
		t.Error("memory was used")
	}
}

// There are so many offers at once, and however many one tenant asks for, another one gets some.
func TestOffersAreBounded(t *testing.T) {
	h := start(t, 1<<30)
	all := 0
	for _, tenant := range []string{"t", "u", "v", "t"} {
		want := (maxOffers - all) / 2
		if tenant == "t" && all > 0 {
			want = 0
		}
		got := 0
		for ; got <= maxOffers; got++ {
			if _, err := h.Offer(tenant); err != nil {
				if !errors.Is(err, ErrBusy) {
					t.Fatal(err)
				}
				break
			}
		}
		if all += got; got != want {
			t.Errorf("%d offers for tenant %s, not %d", got, tenant, want)
		}
	}
}

// Strangers that show nothing, or half a key, keep others out for a while at most.
func TestStrangersAreSentAway(t *testing.T) {
	h := startPatient(t, 1<<30, time.Second)
	var strangers []*net.UnixConn
	for i := range maxStrangers {
		c, err := net.DialUnix("unix", nil, h.listener.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("0123456789")[:i%10])
		strangers = append(strangers, c)
	}
	for deadline := time.Now().Add(20 * time.Second); ; { // the key that was given out may be too old by then
		key, err := h.Offer("t")
		if err != nil {
			t.Fatal(err)
		}
		if c, err := h.connect(t, key); err == nil {
			c.close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the strangers keep others out")
		}
	}
	for _, c := range strangers {
		ended(t, c)
	}
}

// Who has shown a key need say no more, and is no stranger.
func TestGuestsAreNotStrangers(t *testing.T) {
	h := startPatient(t, 1<<30, 20*time.Second)
	for range maxStrangers + 2 {
		_, c := h.guest(t)
		defer c.close()
	}
}

// Close ends strangers, guests, and clients that still use what ended streams have left them.
func TestCloseEndsAll(t *testing.T) {
	h := start(t, 1<<30)
	stranger, err := net.DialUnix("unix", nil, h.listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	key, guest := h.guest(t)
	defer guest.close()
	r, c := h.ring(t)
	put(t, r, "m", bytesOf(1, 100))
	c.next(t)
	r.End()
	idle, d := h.join(t)
	idle.End() // of a stream that was refused
	defer d.close()
	ended(t, d.conn)
	h.Close()
	for _, c := range []*net.UnixConn{stranger, guest.conn, c.conn} {
		ended(t, c)
	}
	if h.charged() != 0 {
		t.Errorf("%d bytes are charged", h.charged())
	}
	if _, err := h.Offer("t"); !errors.Is(err, ErrBusy) {
		t.Errorf("an offer of a host that is closed: %v", err)
	}
	if h.Join(key, "t") != nil {
		t.Error("a ring of a host that is closed")
	}
}

// Each stream's memory is its own, and new: who has had another's sees nothing of it.
func TestMemoryIsNotUsedAgain(t *testing.T) {
	h := start(t, 1<<30)
	r, c := h.ring(t)
	put(t, r, "m", bytesOf(1, 1<<20))
	n := c.next(t)
	c.back(t, n)
	if err := r.Spare(); err != nil {
		t.Fatal(err)
	}
	r.End()
	s, d := h.ring(t)
	defer s.End()
	put(t, s, "m", bytesOf(2, 1<<20))
	m := d.next(t)
	if c.blocks(t) != 0 {
		t.Error("what was given back is used still")
	}
	d.back(t, m)
	if fd, err := unix.FcntlInt(uintptr(d.fd), unix.F_GET_SEALS, 0); err != nil || fd != unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL {
		t.Errorf("seals %#x, %v", fd, err)
	}
}
