package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

const ticketPrefix = "hr1."

// payload is base64 as tickets have it: URL alphabet, no padding, no stray bits.
var payload = base64.RawURLEncoding.Strict()

// pins is what a gateway adds to a request of full length when it makes a ticket: the snapshot and the flight.
const pins = 256

// Ticket returns the request as a ticket: hr1.<payload>.<digits>, where the payload is the canonical JSON in base64url
// and the digits are the first 16 of the hex SHA-256 of the payload's text. They guard against damage, not malice:
// there is no secret in a ticket, and who may redeem it is asked every time.
func (r *Request) Ticket() []byte {
	text := payload.EncodeToString(r.Canonical())
	return []byte(ticketPrefix + text + "." + checksum(text))
}

func checksum(text string) string {
	digest := sha256.Sum256([]byte(text))
	return hex.EncodeToString(digest[:8])
}

// ParseTicket reads what DoGet is given: a ticket, byte for byte as a gateway made it, or a request written by hand.
// The second must name its snapshot where ranks, workers or a resumed stream could otherwise plan on different listings.
func ParseTicket(b []byte) (*Request, error) {
	if bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{")) {
		return parseByHand(b)
	}
	const most = len(ticketPrefix) + (MaxRequest+pins)*4/3 + 1 + 1 + 16
	rest, ok := strings.CutPrefix(string(b[:min(len(b), most+1)]), ticketPrefix)
	if !ok || len(b) > most {
		return nil, errTicket
	}
	text, digits, _ := strings.Cut(rest, ".")
	if digits != checksum(text) {
		return nil, errTicket
	}
	js, err := payload.DecodeString(text)
	if err != nil {
		return nil, errTicket
	}
	r, err := parse(js)
	if err != nil {
		return nil, fmt.Errorf("ticket: %w", err)
	}
	if !isHex(r.Snapshot, 64) || r.Flight == "" || !bytes.Equal(r.Ticket(), b) {
		return nil, errTicket
	}
	return r, nil
}

var errTicket = fmt.Errorf("%w: not a ticket, or a damaged one: pass on the bytes of FlightInfo unchanged, or write a JSON request",
	ErrRequest)

func parseByHand(b []byte) (*Request, error) {
	r, err := Parse(b)
	if err != nil {
		return nil, err
	}
	if !isHex(r.Snapshot, 64) && (r.WorldSize > 1 || r.NumWorkers > 1 || r.Start != nil || r.After != nil) {
		return nil, fmt.Errorf("%w: name the snapshot (FlightInfo's metadata has it): with ranks, workers, start or after "+
			"the newest could be another one for each stream", ErrRequest)
	}
	return r, nil
}
