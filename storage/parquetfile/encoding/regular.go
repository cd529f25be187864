package encoding

// Regular tells whether the next n pairs of levels are those of lists of size
// elements each, none of them null, phase elements of the first of which came
// before. If so it passes them, else it stays.
func (l *Lists) Regular(n, size, phase int) (bool, error) {
	rep, def := l.rep, l.def
	if ok, err := rep.Regular(n, size, phase); !ok {
		return false, err
	}
	if ok, err := def.All(n); !ok {
		return false, err
	}
	l.rep, l.def, l.left, l.open = rep, def, l.left-n, true
	return true, nil
}

// Passed says that pages before the next one were not looked at: it may begin with elements of a list in them.
func (l *Lists) Passed() { l.open = true }
