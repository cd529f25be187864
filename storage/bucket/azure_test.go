package bucket

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// shelf answers like Azure's blob service where a container keeps versions,
// which no server that runs here does.
type shelf struct {
	mu       sync.Mutex
	versions []string // of the blob "x", oldest first; "" for one that was deleted for good
	asked    []string // the condition and version of each request for bytes
}

func (s *shelf) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.versions)
	id := r.URL.Query().Get("versionid")
	if id != "" {
		_, _ = fmt.Sscanf(id, "v%d", &at) // at stays the newest
	}
	data := s.versions[at-1]
	tag := fmt.Sprintf(`"e%d"`, at)
	if r.Method == http.MethodGet {
		s.asked = append(s.asked, strings.TrimSpace(r.Header.Get("If-Match")+" "+id))
	}
	switch match := r.Header.Get("If-Match"); {
	case r.URL.Path != "/account/data/x" || data == "":
		w.Header().Set("x-ms-error-code", "BlobNotFound")
		w.WriteHeader(http.StatusNotFound)
		return
	case match != "" && match != tag:
		w.Header().Set("x-ms-error-code", "ConditionNotMet")
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	w.Header().Set("ETag", tag)
	w.Header().Set("x-ms-version-id", fmt.Sprintf("v%d", at))
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		return
	}
	var from, to int
	if _, err := fmt.Sscanf(r.Header.Get("x-ms-range"), "bytes=%d-%d", &from, &to); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	to = min(to, len(data)-1)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(data)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write([]byte(data[from : to+1])) // the client may be gone
}

func (s *shelf) put(data ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = append(s.versions, data...)
}

// What was opened, or read once, is asked for by the id of its version, and stays readable when the blob is replaced.
func TestAzureVersionsStayReadable(t *testing.T) {
	const rest = ", and more than is remembered of an end"
	s := &shelf{versions: []string{"the first of them" + rest}}
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c := NewClients(Options{Env: func(string) string { return "" }})
	t.Cleanup(c.Close)
	b, err := c.Open("azblob://data?anonymous=true&endpoint=" + server.URL + "/account")
	if err != nil {
		t.Fatal(err)
	}
	read := func(o *Object, want string) {
		t.Helper()
		p := make([]byte, len(want))
		if err := o.ReadAt(t.Context(), p, 4); err != nil || string(p) != want {
			t.Errorf("%q, %v, want %q", p, err, want)
		}
	}
	open := func(pin Pin) *Object {
		t.Helper()
		o, err := b.Open(t.Context(), "x", pin)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	listed := stamp{size: int64(len(s.versions[0])), tag: "e1"}.pin() // a listing tells no ids
	opened, pinned := open(""), open(listed)
	read(opened, "first")
	read(pinned, "first")
	if p := pinned.Pin(); p != opened.Pin() || !p.Lists(listed) {
		t.Errorf("pins %q and %q", p, opened.Pin())
	}
	s.put("and then the second" + rest)
	for _, o := range []*Object{opened, pinned, open(opened.Pin())} {
		read(o, "first")
	}
	read(open(""), "then")
	if err := open(listed).ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, ErrChanged) {
		t.Errorf("by the listing alone: %v, want ErrChanged", err)
	}
	if got, want := strings.Join(s.asked, ", "), `v1, "e1", v1, v1, v1, v2, "e1"`; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
	s.mu.Lock()
	s.versions[0] = ""
	s.mu.Unlock()
	if err := opened.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("a version that was deleted for good: %v, want ErrNotFound", err)
	}
}
