package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// FuzzRequest: what passes is JSON to the standard library too, and its canonical text means the same.
func FuzzRequest(f *testing.F) {
	for _, g := range goldenTickets(f) {
		f.Add([]byte(g.Request))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrRequest) || len(err.Error()) > 900 {
				t.Fatalf("%v", err)
			}
			return
		}
		if !json.Valid(b) {
			t.Fatalf("%q passed and is no JSON", b)
		}
		again, err := parse(r.Canonical())
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%q became %q: %v", b, r.Canonical(), err)
		}
		if len(r.Canonical()) > len(b)+pins {
			t.Fatalf("canonical text grew from %d to %d bytes", len(b), len(r.Canonical()))
		}
		_ = r.Validate()
	})
}

// FuzzTicket: a ticket that passes is the one ticket of its request.
func FuzzTicket(f *testing.F) {
	for _, g := range goldenTickets(f) {
		f.Add([]byte(g.Ticket))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseTicket(b)
		if err != nil {
			if !errors.Is(err, ErrRequest) || len(err.Error()) > 900 {
				t.Fatalf("%v", err)
			}
			return
		}
		if bytes.HasPrefix(b, []byte("hr1.")) && !bytes.Equal(r.Ticket(), b) {
			t.Fatalf("%q is also %q", b, r.Ticket())
		}
	})
}

// FuzzCursor: a cursor has one text.
func FuzzCursor(f *testing.F) {
	f.Add("hr1:" + hash32 + ":0:0")
	f.Add("hr1:" + hash32 + ":2147483647:9223372036854775807")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCursor(s)
		if err == nil && c.String() != s {
			t.Fatalf("%q is also %q", s, c)
		}
		if err != nil && !errors.Is(err, ErrRequest) {
			t.Fatal(err)
		}
	})
}
