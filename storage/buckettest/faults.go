package buckettest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
)

// Faults is a proxy before a store that lets a test answer in its place.
type Faults struct {
	// Answer looks at a request. It returns false to let the store answer, or
	// true once it has done so itself; a panic with http.ErrAbortHandler cuts the
	// connection. It may wrap w for what the store answers: see Serve.
	answer   atomic.Pointer[func(w http.ResponseWriter, r *http.Request, pass http.Handler)]
	requests atomic.Int64
	flying   atomic.Int64
	most     atomic.Int64
}

// Before starts a proxy before a store; it is gone when the test ends.
func Before(t testing.TB, s *Store) (*Store, *Faults) {
	t.Helper()
	f := &Faults{}
	to := &url.URL{Scheme: "http", Host: s.Host()}
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}
	pass := &httputil.ReverseProxy{
		// The host stays as the client wrote it: it is signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
		},
		Transport:    transport,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		n := f.flying.Add(1)
		defer f.flying.Add(-1)
		for most := f.most.Load(); n > most && !f.most.CompareAndSwap(most, n); most = f.most.Load() {
		}
		if answer := f.answer.Load(); answer != nil {
			(*answer)(w, r, pass)
			return
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return s.Behind(u.Host), f
}

// Answer makes f answer requests; pass is the store. Nil: the store answers all.
func (f *Faults) Answer(answer func(w http.ResponseWriter, r *http.Request, pass http.Handler)) {
	if answer == nil {
		f.answer.Store(nil)
		return
	}
	f.answer.Store(&answer)
}

// Requests returns how many requests came.
func (f *Faults) Requests() int64 { return f.requests.Load() }

// Most returns how many there were at once.
func (f *Faults) Most() int64 { return f.most.Load() }

// Deny answers with a status and an error as S3 writes it; without a code the
// body is empty.
func Deny(w http.ResponseWriter, status int, code string) {
	if code == "" {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte("<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>so it is.</Message></Error>")) // the client may be gone
}

// Cut passes on what the store answers, but for all bytes after the first few of
// the body: then the connection ends.
func Cut(w http.ResponseWriter, r *http.Request, pass http.Handler, after int) {
	pass.ServeHTTP(&cutter{ResponseWriter: w, left: after}, r)
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) <= c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left]) // what follows matters more
	_ = http.NewResponseController(c.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}
