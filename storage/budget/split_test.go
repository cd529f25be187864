package budget

import "testing"

// A grant can be cut in two, each of which ends on its own; nothing is reserved twice or lost.
func TestSplit(t *testing.T) {
	l := New(Options{Limit: 100})
	whole, err := l.Try(80)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole.Charge(Frames, 30); err != nil {
		t.Fatal(err)
	}
	part := whole.Split(50)
	if whole.Free() != 0 || part.Free() != 50 {
		t.Errorf("%d and %d free", whole.Free(), part.Free())
	}
	if st := l.Stats(); st.Reserved != 80 || st.Grants != 2 {
		t.Errorf("after the split: %+v", st)
	}
	if err := part.Charge(Frames, 50); err != nil {
		t.Error(err)
	}
	whole.Credit(Frames, 30)
	whole.Close()
	if st := l.Stats(); st.Reserved != 50 || st.Grants != 1 {
		t.Errorf("after the first has ended: %+v", st)
	}
	part.Close()
	if part.Free() != 0 {
		t.Errorf("%d free after the end", part.Free())
	}
	part.Credit(Frames, 50)
	if st := l.Stats(); st.Reserved != 0 || st.Grants != 0 {
		t.Errorf("at the end: %+v", st)
	}
}

func TestSplitOfWhatIsInUse(t *testing.T) {
	g, _ := New(Options{Limit: 10}).Try(10)
	if err := g.Charge(Frames, 6); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g.Split(5)
}
