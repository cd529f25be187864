package budget

import "pgregory.net/rapid"

// keeper is what the model knows of the keeper, beside the real one.
type keeper struct {
	*hoard
	share *share
	inUse int64 // of its frames, that cannot be given up now
	asked int64 // what those who wait want of it, when that is told next
	dry   bool  // it could not give what was wanted last
}

// keeps gives the ledger a keeper, the first of all holders.
func (m *model) keeps(l *Ledger) {
	m.keeper.hoard = newHoard(l)
	m.keeper.share = &share{loan: true, grant: m.keeper.Grant(), cancel: func() {}}
	m.held = append(m.held, m.keeper.share)
}

func (m *model) quiet() bool { return len(m.line)+len(m.slots) == 0 }

// spare gives up at most so many bytes, and tells how many.
func (m *model) spare(n int64) int64 {
	k := &m.keeper
	if n = min(n, k.share.frames-k.inUse); n > 0 {
		k.share.frames -= n
		k.dry = false
	}
	return max(n, 0)
}

// reclaim makes n bytes free as far as that goes, and tells whether that made any.
func (m *model) reclaim(n int64) bool { return n <= m.limit-m.large && m.spare(n-m.free()) > 0 }

// want asks for bytes on behalf of those who wait, and returns how many will come.
func (m *model) want(n int64) int64 {
	k := &m.keeper
	if n = min(n, k.share.frames); n <= 0 {
		return 0
	}
	if k.asked = max(k.asked, n); k.dry {
		return 0
	}
	return n
}

// word is what the keeper is told.
func (m *model) word() (wanted int64) {
	k := &m.keeper
	wanted, k.asked = k.asked, 0
	if wanted == 0 {
		k.dry = false
	}
	return wanted
}

// repay lets the keeper give up what is wanted, and tells whether it had any of it.
func (m *model) repay(t *rapid.T, wanted *int64) bool {
	m.keeper.Repay()
	want := *wanted
	freed := m.spare(want)
	if freed > 0 {
		*wanted = m.round(t)
	}
	if freed < want {
		m.keeper.dry = true
		*wanted = m.round(t)
	}
	return freed > 0
}

// keep has the keeper take over what another holds, as a cache does: it gives up first what is in the way.
func (m *model) keep(t *rapid.T) {
	from := m.pick(t, func(s *share) bool { return m.anyone(s) && s.frames > 0 && !s.loan })
	n := rapid.Int64Range(1, from.frames).Draw(t, "n")
	before := m.firmOf(from)
	from.frames -= n
	spent := before - m.firmOf(from)
	from.frames += n
	want := max(n-spent-m.free(), 0)
	short, ok := m.keeper.Short(from.grant, n)
	if short != want || ok != m.quiet() {
		t.Fatalf("%d bytes short of %d, %v; want %d", short, n, ok, want)
	}
	switch {
	case !ok:
	case short > 0:
		if got, want := m.keeper.give(short), m.spare(short); got != want {
			t.Fatalf("%d bytes given up, not %d", got, want)
		}
	case !from.grant.Pass(Frames, n, m.keeper.Grant()):
		t.Fatalf("%d bytes were not taken over though nothing is in the way", n)
	default:
		from.frames, m.keeper.share.frames = from.frames-n, m.keeper.share.frames+n
		m.passed(from, m.keeper.share, n)
	}
}

// use says how much of what is kept is in use.
func (m *model) use(t *rapid.T) {
	m.keeper.use(rapid.Int64Range(0, m.keeper.share.frames).Draw(t, "in use"))
}

func (k *keeper) use(n int64) { k.inUse, k.hoard.inUse = n, n }

// passed notes what was passed to the keeper, or by it to whoever uses it.
func (m *model) passed(from, to *share, n int64) {
	k := &m.keeper
	switch k.share {
	case from:
		k.kept -= n
		k.use(min(k.inUse, k.kept))
	case to:
		k.kept += n
	default:
		return
	}
	k.dry = false
}
