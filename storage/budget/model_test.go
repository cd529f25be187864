package budget

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// model is what the ledger should be, in the plainest form: every number is
// summed up anew from what each holder has.
type model struct {
	limit, large int64
	held         []*share
	line, slots  []*share
	ahead        []*share // oldest first
	holder       *share
	keeper       keeper
}

type share struct {
	need    int64
	frames  int64
	scratch int64
	loan    bool
	slot    bool
	asked   bool // what is revocable, or the slot, is wanted by another
	closed  bool
	grant   *Grant
	revoked <-chan struct{}
	got     chan *Grant
	cancel  context.CancelFunc
}

func (s *share) used() int64 { return s.frames + s.scratch }

func (s *share) extra() int64 {
	if s.loan {
		return s.used()
	}
	return 0
}

func (m *model) firmOf(s *share) int64 {
	switch {
	case s.loan:
		return 0
	case s.slot:
		return max(0, s.used()-m.large)
	case s.closed:
		return s.used()
	}
	return max(s.need, s.used())
}

func (m *model) firm() (sum int64) {
	for _, s := range m.held {
		sum += m.firmOf(s)
	}
	return sum
}

func (m *model) free() int64 {
	n := m.limit - m.firm()
	for _, s := range m.held {
		n -= s.extra()
	}
	if m.holder != nil {
		n -= m.large
	}
	return n
}

func (m *model) room(n int64) bool { return n <= m.limit-m.large-m.firm() && n <= m.free() }

// relax forgets loans that are not in use, and the holder of the slot once it is done.
func (m *model) relax() {
	m.ahead = slices.DeleteFunc(m.ahead, func(s *share) bool { return s.extra() == 0 })
	if h := m.holder; h != nil && h.closed && h.used() == 0 {
		m.holder = nil
	}
	if m.holder != nil && len(m.slots) > 0 {
		m.holder.asked = true
	}
}

func (m *model) revoke(n int64) {
	short := n - m.free()
	short -= m.want(short)
	for _, s := range m.ahead {
		if s.asked {
			short -= s.extra()
		}
	}
	for _, s := range slices.Backward(m.ahead) {
		if short > 0 && !s.asked {
			s.asked = true
			short -= s.extra()
		}
	}
}

// serve moves the lines and checks that exactly the same callers got through, as often as the keeper gives something for
// those who still wait.
func (m *model) serve(t *rapid.T, l *Ledger) {
	l.mu.Lock()
	l.serve() // what a charge in vain has asked for is told with the next word
	l.mu.Unlock()
	for wanted := m.round(t); ; {
		if got := m.keeper.Wanted(); got != wanted || wanted > 0 && len(m.keeper.wake) == 0 {
			t.Fatalf("%d bytes are wanted of the keeper, told %d, woken %d", wanted, got, len(m.keeper.wake))
		}
		if wanted == 0 || !m.repay(t, &wanted) {
			break
		}
	}
	select {
	case <-m.keeper.Wake():
	default:
	}
	m.turns(t)
}

// round moves the lines once, and returns what is then wanted of the keeper.
func (m *model) round(t *rapid.T) (wanted int64) {
	synctest.Wait()
	m.relax()
	if len(m.slots) > 0 && m.holder == nil {
		if m.large > m.free() {
			m.revoke(m.large)
		} else {
			s := m.slots[0]
			m.slots = m.slots[1:]
			select {
			case s.grant = <-s.got:
			default:
				t.Fatal("the large slot should have been given")
			}
			m.holder, m.held = s, append(m.held, s)
			s.revoked = s.grant.revoked
			m.relax()
		}
	}
	for len(m.line) > 0 && (m.holder != nil || len(m.slots) == 0) {
		s := m.line[0]
		if !m.room(s.need) {
			if s.need <= m.limit-m.large-m.firm() {
				m.revoke(s.need)
			}
			break
		}
		m.line = m.line[1:]
		select {
		case s.grant = <-s.got:
		default:
			t.Fatalf("need %d should have been served", s.need)
		}
		m.held = append(m.held, s)
	}
	return m.word()
}

// turns checks that nobody was served, or asked to give back, out of turn.
func (m *model) turns(t *rapid.T) {
	for _, s := range slices.Concat(m.line, m.slots) {
		select {
		case <-s.got:
			t.Fatalf("need %d was served out of turn", s.need)
		default:
		}
	}
	for _, s := range m.held {
		asked := false
		select {
		case <-s.revoked:
			asked = true
		default:
		}
		if asked != s.asked {
			t.Fatalf("%d bytes: asked back %v, want %v", s.used(), asked, s.asked)
		}
	}
}

func (m *model) check(t *rapid.T, l *Ledger) {
	got := l.Stats()
	var frames, scratch, extra int64
	open := 0
	for _, s := range m.held {
		frames, scratch, extra = frames+s.frames, scratch+s.scratch, extra+s.extra()
		if !s.closed {
			open++
		}
	}
	if got.Used[Frames] != frames || got.Used[Scratch] != scratch || got.Heap != scratch || got.Lent != extra ||
		got.Reserved != m.limit-m.free() || got.Waiting != len(m.line)+len(m.slots) || got.Grants != open {
		t.Fatalf("ledger %+v, model: frames %d, scratch %d, lent %d, reserved %d, waiting %d and %d, open %d",
			got, frames, scratch, extra, m.limit-m.free(), len(m.line), len(m.slots), open)
	}
	if got.Reserved > m.limit || m.firm() > m.limit-m.large || frames+scratch > got.Reserved {
		t.Fatalf("over the limit: %+v", got)
	}
	if l.Waiting().IsZero() != (got.Waiting == 0) {
		t.Fatalf("%d wait, since %s", got.Waiting, l.Waiting())
	}
}

func (m *model) arrive(l *Ledger, need int64) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &share{need: need, got: make(chan *Grant, 1), cancel: cancel}
	m.line = append(m.line, s)
	go func() {
		if g, err := l.Admit(ctx, need); err == nil {
			s.got <- g
		}
	}()
}

// takes tells whether a share may be charged n more bytes now.
func (m *model) takes(s *share, k Kind, n int64) bool {
	switch growth := max(s.used()+n-m.heldBy(s), 0); {
	case s.closed:
		return false
	case s.loan:
		return n == 0 || !s.asked && m.quiet() && n <= m.free()
	default:
		return growth == 0 || (len(m.line) == 0 || k == Frames) && m.room(growth)
	}
}

// lend notes a loan that is in use.
func (m *model) lend(s *share) {
	if s.loan && s != m.keeper.share && s.used() > 0 && !slices.Contains(m.ahead, s) {
		m.ahead = append(m.ahead, s)
	}
}

func (m *model) charge(t *rapid.T, s *share, k Kind, n int64) {
	growth, want := max(s.used()+n-m.heldBy(s), 0), m.takes(s, k, n)
	if !want && !s.closed && m.quiet() && m.reclaim(growth) {
		want = m.takes(s, k, n)
	}
	charge := s.grant.Charge
	if k == Scratch {
		charge = s.grant.ChargeHeap
	}
	err := charge(k, n)
	switch {
	case (err == nil) != want:
		t.Fatalf("charge of %d: %v, want success %v", n, err, want)
	case !want && !s.closed && !s.loan && growth <= m.limit-m.large-m.firm():
		m.revoke(growth)
	case !want:
		return
	case k == Scratch:
		s.scratch += n
	default:
		s.frames += n
	}
	m.lend(s)
}

// heldBy is what a share may use without growing.
func (m *model) heldBy(s *share) int64 {
	if s.slot {
		return m.firmOf(s) + m.large
	}
	return m.firmOf(s) + s.extra()
}

func (m *model) credit(s *share, k Kind, n int64) {
	if k == Frames {
		s.grant.Credit(k, n)
		s.frames -= n
		return
	}
	s.grant.CreditHeap(k, n)
	s.scratch -= n
}

func (m *model) close(s *share) {
	s.grant.Close()
	s.closed = true
}

// try checks that what fits at once is given at once, unless somebody waits in line.
func (m *model) try(t *rapid.T, l *Ledger, need int64) {
	g, err := l.Try(need)
	if len(m.line) == 0 && !m.room(need) && m.reclaim(need) {
		m.round(t)
	}
	want := len(m.line) == 0 && m.room(need)
	if (err == nil) != want {
		t.Fatalf("try of %d: %v, want success %v", need, err, want)
	}
	if want {
		m.held = append(m.held, &share{need: need, grant: g, cancel: func() {}})
	}
}

// split cuts a grant in two.
func (m *model) split(t *rapid.T) {
	s := m.pick(t, func(s *share) bool { return !s.closed && !s.loan && !s.slot && s.need > s.used() })
	if free := s.grant.Free(); free != s.need-s.used() {
		t.Fatalf("%d free, want %d", free, s.need-s.used())
	}
	n := rapid.Int64Range(0, s.need-s.used()).Draw(t, "n")
	s.need -= n
	m.held = append(m.held, &share{need: n, grant: s.grant.Split(n), cancel: func() {}})
}

// pass lets one grant pay for frames of another one.
func (m *model) pass(t *rapid.T) {
	from := m.pick(t, func(s *share) bool { return s.frames > 0 })
	to := m.pick(t, func(s *share) bool { return s != from })
	n := rapid.Int64Range(1, from.frames).Draw(t, "n")
	if !from.loan {
		from.frames -= n // the other may need just these bytes
	}
	want := m.takes(to, Frames, n)
	if !from.loan {
		from.frames += n
	}
	if got := from.grant.Pass(Frames, n, to.grant); got != want {
		t.Fatalf("pass of %d: %v", n, got)
	}
	if want {
		from.frames, to.frames = from.frames-n, to.frames+n
		m.lend(to)
		m.passed(from, to, n)
	}
}

func (m *model) grow(l *Ledger) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &share{slot: true, got: make(chan *Grant, 1), cancel: cancel}
	m.slots = append(m.slots, s)
	go func() {
		if g, _, err := l.Large(ctx); err == nil {
			s.got <- g
		}
	}()
}

func (m *model) borrow(l *Ledger) {
	s := &share{loan: true, cancel: func() {}}
	s.grant, s.revoked = l.Loan()
	m.held = append(m.held, s)
}

// leave lets one who waits give up.
func (m *model) leave(s *share) {
	s.cancel()
	m.line = slices.DeleteFunc(m.line, func(o *share) bool { return o == s })
	m.slots = slices.DeleteFunc(m.slots, func(o *share) bool { return o == s })
}

// pick draws a holder that the filter lets through.
func (m *model) pick(t *rapid.T, ok func(*share) bool) *share {
	var some []*share
	for _, s := range m.held {
		if ok(s) {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		t.Skip("nobody")
	}
	return rapid.SampledFrom(some).Draw(t, "holder")
}

// anyone is who charges and credits as it likes: the keeper does not.
func (m *model) anyone(s *share) bool { return s != m.keeper.share }

func TestLedgerAgreesWithItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The wrapper hides Deadline, which may not be asked for in a bubble of fake time.
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			const limit = 40
			m := &model{limit: limit, large: rapid.Int64Range(0, 15).Draw(t, "large")}
			l := New(Options{Limit: limit, Large: m.large})
			m.keeps(l)
			kind := func(t *rapid.T) Kind { return rapid.SampledFrom([]Kind{Frames, Scratch}).Draw(t, "kind") }
			t.Repeat(map[string]func(*rapid.T){
				"admit":  func(t *rapid.T) { m.arrive(l, rapid.Int64Range(0, l.Most()).Draw(t, "need")) },
				"charge": func(t *rapid.T) { m.charge(t, m.pick(t, m.anyone), kind(t), rapid.Int64Range(0, 20).Draw(t, "n")) },
				"credit": func(t *rapid.T) {
					s, k := m.pick(t, m.anyone), kind(t)
					most := s.frames
					if k == Scratch {
						most = s.scratch
					}
					m.credit(s, k, rapid.Int64Range(0, most).Draw(t, "n"))
				},
				"close": func(t *rapid.T) { m.close(m.pick(t, m.anyone)) },
				"try":   func(t *rapid.T) { m.try(t, l, rapid.Int64Range(0, l.Most()).Draw(t, "need")) },
				"split": m.split,
				"pass":  m.pass,
				"loan":  func(*rapid.T) { m.borrow(l) },
				"large": func(t *rapid.T) {
					if m.large == 0 {
						t.Skip("no slot")
					}
					m.grow(l)
				},
				"leave": func(t *rapid.T) {
					waiting := slices.Concat(m.line, m.slots)
					if len(waiting) == 0 {
						t.Skip("nobody waits")
					}
					m.leave(rapid.SampledFrom(waiting).Draw(t, "who"))
				},
				"keep": m.keep,
				"use":  m.use,
				"":     func(t *rapid.T) { m.serve(t, l); m.check(t, l) },
			})
			m.drain(t, l)
		})
	})
}

// drain lets everybody finish: nobody may be left waiting, nothing left reserved.
func (m *model) drain(t *rapid.T, l *Ledger) {
	m.keeper.use(0)
	for len(m.held)+len(m.line)+len(m.slots) > 1 {
		if len(m.held) == 1 {
			t.Fatal("deadlock: some wait, nobody holds but the keeper")
		}
		s := m.held[1]
		m.credit(s, Frames, s.frames)
		m.serve(t, l)
		m.credit(s, Scratch, s.scratch)
		m.serve(t, l)
		m.close(s)
		s.cancel()
		m.serve(t, l)
		m.held = slices.DeleteFunc(m.held, func(o *share) bool { return o == s })
	}
	m.keeper.give(m.keeper.kept)
	m.keeper.Close()
	if s := l.Stats(); s.Reserved != 0 || s.Grants != 0 || len(s.Used) != 0 || s.Heap != 0 {
		t.Fatalf("left over: %+v", s)
	}
}
