package wire

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What is under testdata was once on the wire. A change that needs other files there breaks clients and stored cursors.

func golden(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func goldenLines(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(string(golden(t, name)), "\n"), "\n")
}

type goldenTicket struct{ Name, Request, Ticket string }

func goldenTickets(t testing.TB) []goldenTicket {
	b, err := os.ReadFile(filepath.Join("testdata", "tickets.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []goldenTicket
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestTicketsAreFrozen(t *testing.T) {
	for _, g := range goldenTickets(t) {
		t.Run(g.Name, func(t *testing.T) {
			r, err := ParseTicket([]byte(g.Ticket))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(r.Canonical()); got != g.Request {
				t.Errorf("canonical\n got %s\nwant %s", got, g.Request)
			}
			byHand, err := ParseTicket([]byte(" \n" + g.Request + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(r, byHand) {
				t.Errorf("written by hand it is another request: %+v, %+v", r, byHand)
			}
			if got := string(byHand.Ticket()); got != g.Ticket {
				t.Errorf("ticket\n got %s\nwant %s", got, g.Ticket)
			}
		})
	}
}

func TestCursorsAreFrozen(t *testing.T) {
	for _, line := range goldenLines(t, "cursors.txt") {
		c, err := ParseCursor(line)
		if err != nil {
			t.Fatal(err)
		}
		if c.String() != line {
			t.Errorf("%s became %s", line, c)
		}
	}
}

func TestMetadataIsFrozen(t *testing.T) {
	frozen[BatchMeta](t, "batch.json")
	frozen[InfoMeta](t, "info.json")
	frozen[EndpointMeta](t, "endpoint.json")
	frozen[ListedMeta](t, "listed.json")
}

func frozen[M BatchMeta | InfoMeta | EndpointMeta | ListedMeta](t *testing.T, file string) {
	t.Helper()
	for _, line := range goldenLines(t, file) {
		m, err := ParseMeta[M]([]byte(line))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if got := string(marshal(m)); got != line {
			t.Errorf("%s\n got %s\nwant %s", file, got, line)
		}
		later := strings.TrimSuffix(line, "}") + `,"later":[1]}`
		if again, err := ParseMeta[M]([]byte(later)); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%s: a key added later changed the rest: %v", file, err)
		}
	}
}

// Clients and proxies put limits on metadata, so the longest there can be must stay short.
func TestBatchMetaIsShort(t *testing.T) {
	sum := strings.Repeat("f", 32)
	last := BatchMeta{
		Cursor: Cursor{Plan: sum, Epoch: MaxEpoch, Rows: math.MaxInt64}.String(),
		Epoch:  MaxEpoch, Step: math.MaxInt64, Sum: sum, Part: maxCount, Parts: maxCount,
		Receipt: &Receipt{math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, sum},
	}
	whole := last // a split one tells its waits with its first part, and its receipt with the last
	whole.Part, whole.Parts = 0, 0
	whole.WaitUS, whole.StoreUS, whole.DecodeUS = math.MaxInt64, math.MaxInt64, math.MaxInt64
	for _, m := range []BatchMeta{last, whole} {
		if n := len(m.Marshal()); n >= 400 {
			t.Errorf("%d bytes: %s", n, m.Marshal())
		}
	}
}

func TestParseMetaRefusesOtherBytes(t *testing.T) {
	for _, b := range []string{"", "null x", "[]", `{"epoch":"1"}`} {
		if _, err := ParseMeta[BatchMeta]([]byte(b)); err == nil {
			t.Errorf("%q passed", b)
		}
	}
}
