package bucket

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAddressesThatAreRefused(t *testing.T) {
	for text, say := range map[string]string{
		"s3://":                                 "name of the bucket",
		"s3:///prefix":                          "name of the bucket",
		"s3://data:9000/x":                      "?endpoint=",
		"s3://key:secret@data/x":                "leave keys and passwords out",
		"s3://data/x#y":                         "%23",
		"s3://data/a/../b":                      "'..'",
		"s3://data/a//b":                        "empty parts",
		"s3://data?regoin=x":                    `"regoin" is not one of region, endpoint`,
		"s3://data?Region=x":                    `"Region" is not one of`,
		"gs://data?region=x":                    `"region" is not one of endpoint`,
		"azblob://data?profile=x":               `"profile" is not one of account`,
		"s3://data?region=a&region=b":           "needs one value",
		"s3://data?region=":                     "needs one value",
		"s3://data?anonymous=yes":               "true or false",
		"s3://data?s3ForcePathStyle=1":          "true or false",
		"s3://data?requests=0":                  "from 1 to 4096",
		"s3://data?requests=many":               "from 1 to 4096",
		"s3://data?endpoint=minio:9000":         "https://minio.example.com:9000",
		"s3://data?endpoint=http://a:b@minio":   "https://minio.example.com:9000",
		"s3://data?endpoint=ftp://minio":        "https://minio.example.com:9000",
		"s3://data?region=%zz":                  "invalid URL escape",
		"http://data/x":                         "not one of file, s3, gs, azblob",
		"file:///x?requests=1":                  "no parameters",
		"s3:data/x":                             "did you mean s3://data/x? A folder of that name is ./s3:data/x",
		"s3:/data":                              "did you mean s3://data?",
		"gs:data":                               "did you mean gs://data?",
		"azblob:/data?account=a":                "did you mean azblob://data?account=a?",
		"file:/data":                            "did you mean file:///data?",
		"file://host/x":                         "no other host",
		"azblob://data?account=a&sas=secret%2F": `"sas" is not one of`,
	} {
		err := Check(text)
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("%s: %v, want %q", text, err, say)
		}
		if err != nil && strings.Contains(err.Error(), "key:secret") {
			t.Errorf("%s: the error gives the password away: %v", text, err)
		}
		if _, err := Open(text); err == nil {
			t.Errorf("%s was opened", text)
		}
	}
}

func TestBase(t *testing.T) {
	for text, want := range map[string]string{
		"s3://data": "data", "s3://data/": "data", "s3://data?region=x": "data", "s3://data/a/b/?region=x": "b", "gs://data/a%20b": "a b",
		"azblob://c/p.lance": "p.lance", "mem://m/x": "x", "./s3:data": "s3:data", "t:10": "t:10", "a/s3:x": "s3:x", "/a/b/../c": "c", "file:///a/b/": "b",
	} {
		if got, err := Base(text); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", text, got, err, want)
		}
	}
}

func TestClientsAreSharedByServer(t *testing.T) {
	c := NewClients(Options{})
	defer c.Close()
	at := func(url string) *remote {
		b, err := c.Open(url)
		must(t, err)
		return b.remote
	}
	one := at("s3://data/a?region=x&requests=7")
	if at("s3://data/b?requests=7&region=x") != one {
		t.Error("two prefixes of a bucket have clients of their own")
	}
	if at("s3://data/a?region=y&requests=7") == one || at("s3://other/a?region=x&requests=7") == one {
		t.Error("two buckets share a client")
	}
	if cap(one.slots) != 7 || cap(at("s3://data").slots) != 64 {
		t.Errorf("%d requests at once", cap(one.slots))
	}
}

func TestAzureNeedsAnAccount(t *testing.T) {
	if _, err := Open("azblob://data/x"); err == nil || !strings.Contains(err.Error(), "?account=NAME") {
		t.Errorf("%v: does not say what to do", err)
	}
	c := NewClients(Options{Env: func(name string) string {
		return map[string]string{"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_KEY": "not base64"}[name]
	}})
	defer c.Close()
	if _, err := c.Open("azblob://data"); err == nil || !strings.Contains(err.Error(), "AZURE_STORAGE_KEY") || strings.Contains(err.Error(), "not base64") {
		t.Errorf("%v: does not name the variable, or gives it away", err)
	}
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:10000/devstoreaccount1": "devstoreaccount1", "https://plant7.blob.core.windows.net": "plant7", "https://azure.example.com": "", "": "",
	} {
		if got := accountIn(endpoint); got != want {
			t.Errorf("the account of %s is %q, want %q", endpoint, got, want)
		}
	}
	// No identity is shown to a server that anybody could be.
	open := NewClients(Options{Tries: 2, Backoff: time.Millisecond, Env: func(string) string { return "" }})
	defer open.Close()
	b, err := open.Open("azblob://data?endpoint=http://127.0.0.1:1/a")
	if err != nil {
		t.Fatal(err)
	}
	err = b.List(t.Context(), "", func(Attrs) error { return nil })
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "AZURE_STORAGE_KEY") || strings.Contains(err.Error(), "2 times") {
		t.Errorf("%v: does not say what to do, or was tried again", err)
	}
}

func TestPinsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := stamp{size: rapid.Int64Min(0).Draw(t, "size"), tag: rapid.StringN(1, 40, -1).Draw(t, "tag"), id: rapid.String().Draw(t, "id")}
		got, ok := stampOf(want.pin())
		if !ok || got != want {
			t.Fatalf("%+v came back as %+v, %v", want, got, ok)
		}
		listed := want
		listed.id = ""
		if !want.pin().Lists(listed.pin()) || listed.pin().Lists(Pin(string(listed.pin())+"x")) || Pin("x").Lists("") {
			t.Fatal("a pin does not know its listing")
		}
	})
}

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-1": 0, "x": 0, "999999": maxAfter, "Mon, 02 Jan 2006 15:04:05 GMT": 0,
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat): maxAfter,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestPausesGrowAndAreBounded(t *testing.T) {
	r := &remote{options: Options{Backoff: time.Second}}
	for failed, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 10: 100 * time.Second, 1000: 100 * time.Second} {
		var longest time.Duration
		for range 200 {
			longest = max(longest, r.pause(failed))
		}
		if longest > most+1 || longest < most/2 {
			t.Errorf("after %d: up to %s, want up to %s", failed, longest, most)
		}
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	r := &remote{name: "x", options: Options{Tries: 100, Backoff: time.Hour}, slots: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	err := r.attempt(ctx, Events{}, "try", func(context.Context) (bool, error) {
		cancel()
		return false, errors.New("no")
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	r.slots <- struct{}{} // all are taken
	if _, err := r.once(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

func TestLongWordsOfAStoreAreCut(t *testing.T) {
	f := &fault{status: 500, code: "X", text: strings.Repeat("a", 10_000)}
	if n := len(f.Error()); n > maxText+20 {
		t.Errorf("%d bytes", n)
	}
}

// Where no store answers, the error says who did not and why, and gives no signature away; what cannot get better is not
// tried again.
func TestAddressesWithoutAStoreAreTold(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	refused := httptest.NewServer(nil)
	refused.Close()
	host := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	c := NewClients(Options{Tries: 2, Backoff: time.Millisecond, Env: func(name string) string {
		return map[string]string{"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=secret"}[name]
	}})
	t.Cleanup(c.Close)
	for at, say := range map[string][]string{
		"s3://data?anonymous=true&endpoint=http://" + host(refused):    {"2 times", "no answer from http://" + host(refused), "refused"},
		"gs://data?anonymous=true&endpoint=http://" + host(refused):    {"2 times", "no answer from http://" + host(refused), "refused"},
		"azblob://data?account=a&endpoint=http://" + host(refused):     {"2 times", "no answer from http://" + host(refused), "refused"},
		"s3://data?anonymous=true&endpoint=https://" + host(plain):     {"no answer from https://", "HTTP response to HTTPS client"},
		"gs://data?anonymous=true&endpoint=https://" + host(plain):     {"no answer from https://", "HTTP response to HTTPS client"},
		"s3://data?anonymous=true&endpoint=http://" + host(plain):      {"2 times", "404", "is there one at this address?"},
		"gs://data?anonymous=true&endpoint=http://" + host(plain):      {"2 times", "404", "is there one at this address?"},
		"azblob://data?account=a&endpoint=http://" + host(plain) + "/": {"2 times", "404", "is there one at this address?"},
	} {
		b, err := c.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		err = b.List(t.Context(), "", func(Attrs) error { return nil })
		for _, s := range say {
			if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v\ndoes not say %q", at, err, s)
			}
		}
		if strings.Contains(at, "https:") && strings.Contains(err.Error(), "2 times") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", at, err)
		}
	}
	f := faultOf(&url.Error{Op: "Get", URL: "https://none/x?sig=secret", Err: &net.DNSError{Err: "no such host", Name: "none", IsNotFound: true}})
	if want := "no answer from https://none: lookup none: no such host"; !f.final || f.Error() != want {
		t.Errorf("%v %q, want %q", f.final, f.Error(), want)
	}
}
