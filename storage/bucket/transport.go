package bucket

import (
	"net/http"
	"time"
)

// tune prepares a transport for many ranges at once. It keeps as many idle
// connections as there may be requests in flight, since the standard's few would
// have most of them opened anew; it stays with HTTP/1.1, where each range has a
// connection and thus a window of its own; and what is stored is what comes,
// compressed or not.
func tune(t *http.Transport, o Options) *http.Transport {
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = o.Requests
	t.IdleConnTimeout = time.Minute
	t.ResponseHeaderTimeout = o.Patience
	t.ReadBufferSize = 64 << 10
	t.DisableCompression = true
	t.ForceAttemptHTTP2 = false
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	return t
}

// standard is the transport that is tuned where an SDK brings none.
func standard(o Options) *http.Transport {
	return tune(http.DefaultTransport.(*http.Transport).Clone(), o)
}

// direct follows only those redirects that keep method and body: others would
// turn a request into another one.
func direct(r *http.Request, via []*http.Request) error {
	code := 0
	if r.Response != nil {
		code = r.Response.StatusCode
	}
	if len(via) > 3 || code != http.StatusTemporaryRedirect && code != http.StatusPermanentRedirect {
		return http.ErrUseLastResponse
	}
	return nil
}
