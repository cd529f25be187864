package wire

import (
	"fmt"
	"math"
)

// ForecastRequest is the body of the action headrace.forecast: what would come of a request, with so much memory and such a
// policy of what is kept, and so large a cache on disk.
type ForecastRequest struct {
	Request *Request
	Limit   int64  // bytes that streams may use; 0: those of the gateway that is asked
	Policy  string // empty: that of the gateway
	Disk    *int64 // bytes of a cache on disk; nil: those of the gateway
}

// ForecastMeta is the answer of headrace.forecast. Sizes are bytes of decoded blocks in memory.
type ForecastMeta struct {
	Hot      int64   `json:"hot"`       // that an epoch reads
	Limit    int64   `json:"limit"`     // that streams may use
	Reserved int64   `json:"reserved"`  // what the streams of the request take of it; if it is more, they wait for each other
	Enough   int64   `json:"enough"`    // what limit would have to be for all that is hot to stay
	Room     int64   `json:"room"`      // what is left to keep blocks in, when that is least
	Policy   string  `json:"policy"`    // by which they are kept
	Disk     int64   `json:"disk"`      // bytes of blocks that lie on disk at most; 0: there is none, or it does not keep such files
	Mapped   int64   `json:"mapped"`    // that an epoch reads beside hot from local files which are mapped: fetched by none, kept nowhere
	Hits     float64 `json:"hits"`      // the part of hot that is in memory, once some epochs were read
	DiskHits float64 `json:"disk_hits"` // the part that is not, but on disk
	Fetched  int64   `json:"fetched"`   // the rest, which each of those epochs fetches; the first one fetches all
}

// ParseForecast reads a ForecastRequest as strictly as a request: {"request": {...}, "limit": 0, "policy": "", "disk": 0}. What is
// wrong is an ErrRequest.
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
		case "disk":
			f.Disk = new(int64)
			*f.Disk, err = d.integer(0, math.MaxInt64)
		default:
			return d.fail("unknown field %s: there are request, limit, policy and disk", clip(key))
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
	b = appendString(b, f.Policy)
	if f.Disk != nil {
		b = fmt.Appendf(b, `,"disk":%d`, *f.Disk)
	}
	return append(b, '}')
}

// Marshal returns the JSON.
func (m ForecastMeta) Marshal() []byte { return marshal(m) }
