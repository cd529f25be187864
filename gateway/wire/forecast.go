package wire

import (
	"fmt"
	"math"
)

// ForecastRequest is the body of the action headrace.forecast: what would come of a request, with so much memory and such a
// policy of what is kept.
type ForecastRequest struct {
	Request *Request
	Limit   int64  // bytes that streams may use; 0: those of the gateway that is asked
	Policy  string // empty: that of the gateway
}

// ForecastMeta is the answer of headrace.forecast. Sizes are bytes of decoded blocks in memory.
type ForecastMeta struct {
	Hot      int64   `json:"hot"`      // that an epoch reads
	Limit    int64   `json:"limit"`    // that streams may use
	Reserved int64   `json:"reserved"` // what the streams of the request take of it; if it is more, they wait for each other
	Enough   int64   `json:"enough"`   // what limit would have to be for all that is hot to stay
	Room     int64   `json:"room"`     // what is left to keep blocks in
	Policy   string  `json:"policy"`   // by which they are kept
	Hits     float64 `json:"hits"`     // the part of an epoch's bytes that is there, once some epochs were read
	Fetched  int64   `json:"fetched"`  // the rest, which each of those epochs fetches; the first one fetches all
}

// ParseForecast reads a ForecastRequest as strictly as a request: {"request": {...}, "limit": 0, "policy": ""}. What is wrong
// is an ErrRequest.
func ParseForecast(b []byte) (*ForecastRequest, error) {
	if len(b) > MaxRequest {
		return nil, fmt.Errorf("%w: %d bytes are more than the %d that a request may have", ErrRequest, len(b), MaxRequest)
	}
	d, f := &decoder{text: b}, &ForecastRequest{}
	err := d.object(func(key string) (err error) {
		switch key {
		case "request":
			f.Request, err = d.request()
		case "limit":
			f.Limit, err = d.integer(0, math.MaxInt64)
		case "policy":
			f.Policy, err = d.str()
		default:
			return d.fail("unknown field %s: there are request, limit and policy", clip(key))
		}
		if err != nil {
			return within(key, err)
		}
		return nil
	})
	if err == nil {
		err = d.end()
	}
	if err == nil && f.Request == nil {
		err = d.fail("request is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return f, nil
}

// Marshal returns the JSON that ParseForecast reads.
func (f *ForecastRequest) Marshal() []byte {
	b := append([]byte(`{"request":`), f.Request.Canonical()...)
	b = fmt.Appendf(b, `,"limit":%d,"policy":`, f.Limit)
	return append(appendString(b, f.Policy), '}')
}

// Marshal returns the JSON.
func (m ForecastMeta) Marshal() []byte { return marshal(m) }
