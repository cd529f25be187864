package bucket

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// googleScope lets objects be read, and snapshots be written.
const googleScope = "https://www.googleapis.com/auth/devstorage.read_write"

// googleStore is a bucket in Google Cloud Storage. It speaks the JSON API by
// itself: the few calls that it takes are simple, and the API takes every key as
// it is.
type googleStore struct {
	client   *http.Client
	endpoint string
	bucket   string
}

func openGCS(a *address, o Options) (store, func()) {
	transport := standard(o)
	s := &googleStore{bucket: a.name, endpoint: "https://storage.googleapis.com", client: &http.Client{Transport: transport, CheckRedirect: direct}}
	if v := a.query.Get("endpoint"); v != "" {
		s.endpoint = strings.TrimSuffix(v, "/")
	}
	if !a.is("anonymous") {
		s.client.Transport = &oauth2.Transport{Base: transport, Source: &defaultTokens{}}
	}
	return s, transport.CloseIdleConnections
}

// defaultTokens finds credentials where Google's own tools look for them, when
// the first token is needed; tokens are renewed shortly before they expire.
type defaultTokens struct {
	mu    sync.Mutex
	found oauth2.TokenSource
}

func (d *defaultTokens) Token() (*oauth2.Token, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.found == nil {
		c, err := google.FindDefaultCredentials(context.Background(), googleScope)
		if err != nil {
			return nil, &credentialsError{err}
		}
		d.found = c.TokenSource
	}
	t, err := d.found.Token()
	if err != nil {
		return nil, &credentialsError{err}
	}
	return t, nil
}

// object is what the API tells about one.
type googleObject struct {
	Name       string `json:"name"`
	Size       int64  `json:"size,string"`
	Generation string `json:"generation"`
}

func (s *googleStore) list(ctx context.Context, prefix, page string) ([]entry, string, error) {
	q := url.Values{"prefix": {prefix}, "fields": {"nextPageToken,items(name,size,generation)"}}
	if page != "" {
		q.Set("pageToken", page)
	}
	var out struct {
		Items         []googleObject `json:"items"`
		NextPageToken string         `json:"nextPageToken"`
	}
	if err := s.json(ctx, s.place("", q), "storage.objects.list", &out); err != nil {
		if f := (*fault)(nil); errors.As(err, &f) && f.what == absent {
			return nil, "", &fault{status: f.status, code: f.code, text: noBucket, final: true}
		}
		return nil, "", err
	}
	all := make([]entry, len(out.Items))
	for i, o := range out.Items {
		all[i] = entry{o.Name, stamp{size: o.Size, tag: o.Generation}}
	}
	return all, out.NextPageToken, nil
}

// place is the address of the bucket's objects, or of one of them.
func (s *googleStore) place(key string, q url.Values) string {
	at := s.endpoint + "/storage/v1/b/" + url.PathEscape(s.bucket) + "/o"
	if key != "" {
		at += "/" + url.PathEscape(key)
	}
	return at + "?" + q.Encode()
}

func (s *googleStore) get(ctx context.Context, key string, of stamp, off, n int64) (*answer, error) {
	if n == 0 {
		var o googleObject
		err := s.json(ctx, s.place(key, url.Values{"fields": {"name,size,generation"}}), "storage.objects.get", &o)
		return &answer{stamp: stamp{size: o.Size, tag: o.Generation}}, err
	}
	// The generation is asked for by name, so that a bucket which keeps old ones answers.
	at := s.place(key, url.Values{"alt": {"media"}, "generation": {of.tag}})
	header := http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", off, off+n-1)}, "Accept-Encoding": {"gzip"}} // gzip: as it is stored
	resp, err := s.do(ctx, http.MethodGet, at, nil, header, "storage.objects.get")
	if f := (*fault)(nil); errors.As(err, &f) && f.what == absent {
		return nil, s.missing(ctx, key, of, f)
	}
	if err != nil {
		return nil, err
	}
	a := &answer{stamp: stamp{size: resp.ContentLength, tag: of.tag}, body: resp.Body}
	if g := resp.Header.Get("X-Goog-Generation"); g != "" {
		a.tag = g
	}
	if err := a.ranged(resp.Header.Get("Content-Range"), off); err != nil {
		_ = resp.Body.Close() // nothing of it is wanted
		return nil, err
	}
	return a, nil
}

// missing finds out what it means that a range is not found: ranges are
// answered without the API's documents, so that it may be anybody's word.
func (s *googleStore) missing(ctx context.Context, key string, of stamp, f *fault) error {
	now, err := s.get(ctx, key, stamp{}, 0, 0)
	switch {
	case err != nil:
		return err
	case now.tag == of.tag:
		return &fault{status: f.status, text: "a range was not found of an object that is there"}
	}
	return &fault{what: replaced, final: true, status: f.status, text: "there is another generation now"}
}

func (s *googleStore) change(ctx context.Context, key string, data []byte) error {
	method, at, action := http.MethodDelete, s.place(key, nil), "storage.objects.delete"
	if data != nil {
		method, action = http.MethodPost, "storage.objects.create"
		at = s.endpoint + "/upload/storage/v1/b/" + url.PathEscape(s.bucket) + "/o?" + url.Values{"uploadType": {"media"}, "name": {key}}.Encode()
	}
	resp, err := s.do(ctx, method, at, data, http.Header{"Content-Type": {"application/octet-stream"}}, action)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// json gets a document.
func (s *googleStore) json(ctx context.Context, at, action string, out any) error {
	resp, err := s.do(ctx, http.MethodGet, at, nil, nil, action)
	if err != nil {
		return err
	}
	return errors.Join(json.NewDecoder(resp.Body).Decode(out), resp.Body.Close())
}

// do sends a request. Any answer but a good one is a fault.
func (s *googleStore) do(ctx context.Context, method, at string, data []byte, header http.Header, action string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, googleCredentials(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var said struct {
		Error struct {
			Message string `json:"message"`
			Errors  []struct {
				Reason string `json:"reason"`
			} `json:"errors"`
		} `json:"error"`
	}
	code := ""
	if body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil && json.Unmarshal(body, &said) == nil && len(said.Error.Errors) > 0 {
		code = said.Error.Errors[0].Reason
	} else if text := strings.TrimSpace(string(body)); strings.HasPrefix(text, "No such object") || text == "Not Found" {
		code = "notFound" // for ranges the answer is bare text
	}
	return nil, s.fault(resp, code, said.Error.Message, action)
}

const noBucket = "there is no such bucket: look at its name"

func (s *googleStore) fault(resp *http.Response, code, text, action string) *fault {
	none := "notFound"
	if strings.Contains(text, "bucket does not exist") {
		none, text = "", noBucket
	}
	if resp.StatusCode != http.StatusNotFound {
		none = ""
	}
	f := answered(resp.StatusCode, code, text, resp.Header, nil, none)
	if resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusUnauthorized {
		f.text = strings.TrimSuffix(text, ".") + "; the gateway's credentials need " + action +
			" here: look at GOOGLE_APPLICATION_CREDENTIALS or the machine's service account, or add ?anonymous=true for a public bucket"
	}
	return f
}

// googleCredentials says what to do where no token could be had.
func googleCredentials(err error) error {
	var none *credentialsError
	if !errors.As(err, &none) {
		return err
	}
	var refused *oauth2.RetrieveError
	passing := errors.As(err, &refused) && refused.Response != nil && refused.Response.StatusCode >= 500
	return &fault{final: !passing, cause: err, text: "no credentials: set GOOGLE_APPLICATION_CREDENTIALS, " +
		"run gcloud auth application-default login, or add ?anonymous=true for a public bucket: " + none.Error()}
}
