package wire

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func sample() *Request {
	r := New("imagenet/train")
	r.Snapshot, r.Flight, r.BatchSize = hash64, hash32, 256
	return r
}

// seal makes a ticket of any JSON, with the right digits.
func seal(js string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(js))
	return "hr1." + text + "." + checksum(text)
}

func TestParseTicketRefuses(t *testing.T) {
	good := string(sample().Ticket())
	text := strings.Split(good, ".")[1]
	pinned := `"snapshot":"` + hash64 + `"`
	flown := `"flight":"` + hash32 + `"`
	for name, b := range map[string]string{
		"empty":             "",
		"only the prefix":   "hr1.",
		"dots":              "hr1...",
		"a megabyte":        strings.Repeat("a", 1<<20),
		"a megabyte, hr1":   "hr1." + strings.Repeat("a", 1<<20),
		"another version":   "hr2." + text + "." + checksum(text),
		"no digits":         "hr1." + text,
		"digits upper case": "hr1." + text + "." + strings.ToUpper(checksum(text)),
		"digits too many":   good + "0",
		"a third dot":       good + ".",
		"a newline after":   good + "\n",
		"a space before":    " " + good,
		"padding":           "hr1." + text + "=." + checksum(text+"="),
		"a newline inside":  "hr1." + text[:8] + "\n" + text[8:] + "." + checksum(text[:8]+"\n"+text[8:]),
		"standard alphabet": "hr1.+/+/." + checksum("+/+/"),
		"stray bits":        "hr1.eyJ." + checksum("eyJ"),
		"not JSON":          seal("hello"),
		"no snapshot":       seal(`{"dataset":"d",` + flown + `}`),
		"no flight":         seal(`{"dataset":"d",` + pinned + `}`),
		"spaces":            seal(`{"dataset": "d",` + pinned + `,` + flown + `}`),
		"default spelt out": seal(`{"dataset":"d",` + pinned + `,"row_id":false,` + flown + `}`),
		"another order":     seal(`{` + pinned + `,"dataset":"d",` + flown + `}`),
		"needless escape":   seal(`{"dataset":"\u0064",` + pinned + `,` + flown + `}`),
		"unknown field":     seal(`{"dataset":"d",` + pinned + `,` + flown + `,"x":1}`),
		"left the root":     seal(`{"dataset":"../d",` + pinned + `,` + flown + `}`),
	} {
		if _, err := ParseTicket([]byte(b)); !errors.Is(err, ErrRequest) {
			t.Errorf("%s: %v", name, err)
		} else if len(err.Error()) > 700 {
			t.Errorf("%s: %d bytes of text", name, len(err.Error()))
		}
	}
	if _, err := ParseTicket([]byte(seal(`{"dataset":"d",` + pinned + `,` + flown + `}`))); err != nil {
		t.Error(err)
	}
}

// The digits are there so that a damaged ticket is told from a request for other rows.
func TestDamagedTicketsAreRefused(t *testing.T) {
	good := sample().Ticket()
	rapid.Check(t, func(t *rapid.T) {
		bad := append([]byte{}, good...)
		i := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		bad[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if _, err := ParseTicket(bad); !errors.Is(err, ErrRequest) {
			t.Fatalf("byte %d: %v", i, err)
		}
	})
}

func TestLargestRequestFitsATicket(t *testing.T) {
	const open, shut = `{"dataset":"d","columns":["`, `"]}`
	r, err := Parse([]byte(open + strings.Repeat("x", MaxRequest-len(open)-len(shut)) + shut))
	if err != nil {
		t.Fatal(err)
	}
	r.Snapshot, r.Flight = hash64, hash32
	if _, err := ParseTicket(r.Ticket()); err != nil {
		t.Error(err)
	}
}

// Ranks, workers and resumed streams that each took the newest snapshot could differ in their rows without anybody noticing.
func TestHandWrittenTicketsPinWhatMustAgree(t *testing.T) {
	place := `"` + Cursor{hash32, 0, 5}.String() + `"`
	for _, member := range []string{`"world_size":2`, `"num_workers":2`, `"start":` + place, `"after":` + place} {
		loose := `{"dataset":"d",` + member + `}`
		if _, err := ParseTicket([]byte(loose)); !errors.Is(err, ErrRequest) || !strings.Contains(err.Error(), "name the snapshot") {
			t.Errorf("%s: %v", loose, err)
		}
		if _, err := Parse([]byte(loose)); err != nil {
			t.Errorf("a descriptor may leave it out: %v", err)
		}
		if _, err := ParseTicket([]byte(`{"dataset":"d","snapshot":"` + hash64 + `",` + member + `}`)); err != nil {
			t.Error(err)
		}
	}
	for _, fine := range []string{`{"dataset":"d"}`, "\n\t {\"dataset\":\"d\",\"batch_size\":8}\n"} {
		if _, err := ParseTicket([]byte(fine)); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

func TestParseCursorRefuses(t *testing.T) {
	for _, s := range []string{
		"", "hr1", "hr1:" + hash32, "hr1:" + hash32 + ":0", "hr1:" + hash32 + ":0:0:0", "hr2:" + hash32 + ":0:0",
		"HR1:" + hash32 + ":0:0", "hr1:" + strings.ToUpper(hash32) + ":0:0", "hr1:" + hash64 + ":0:0", "hr1::0:0",
		"hr1:" + hash32 + ":00:0", "hr1:" + hash32 + ":0:+1", "hr1:" + hash32 + ":-1:0", "hr1:" + hash32 + ":0:-1",
		"hr1:" + hash32 + ":0:1_0", "hr1:" + hash32 + ":0:9223372036854775808", "hr1:" + hash32 + ":2147483648:0",
		"hr1:" + hash32 + ":0:0\n", " hr1:" + hash32 + ":0:0", "hr1:" + hash32 + ":0:", "hr1:" + hash32 + ":0:0x1",
		"hr1:" + strings.Repeat("a", 31) + "g:0:0",
	} {
		if _, err := ParseCursor(s); !errors.Is(err, ErrRequest) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
