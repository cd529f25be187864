package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headrace/headrace/storage/bucket"
)

// troubled is a store behind a proxy, with an object "x" of 200,000 bytes.
type troubled struct {
	store  *Store
	faults *Faults
	bucket *bucket.Bucket // through the proxy
	direct *bucket.Bucket
	want   []byte
}

// tries is how often the clients of these tests try.
const tries = 6

func trouble(t *testing.T, parameters ...string) *troubled { return troubleIn(t, S3(t), parameters...) }

func troubleIn(t *testing.T, s *Store, parameters ...string) *troubled {
	t.Helper()
	s.Use(t)
	behind, faults := Before(t, s)
	c := bucket.NewClients(bucket.Options{Tries: tries, Backoff: time.Millisecond, Patience: 300 * time.Millisecond})
	t.Cleanup(c.Close)
	w := &troubled{
		store: behind, faults: faults, want: sample(200_000),
		bucket: open(t, c, behind.URL("p", parameters...)), direct: open(t, c, s.URL("p")),
	}
	must(t, w.direct.Put(t.Context(), "x", w.want))
	return w
}

// read reads all of x in one request, if nothing comes between.
func (w *troubled) read(t *testing.T) error {
	t.Helper()
	got, err := content(t, w.bucket, "x", "")
	if err == nil && !bytes.Equal(got, w.want) {
		t.Error("other bytes came back")
	}
	return err
}

// isData tells whether a request is for bytes of an object, more than the one
// by which an object is looked at.
func isData(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/x") && r.Header.Get("Range") != "bytes=0-0"
}

func TestB54SlowDownsAreWaitedOut(t *testing.T) {
	w := trouble(t)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(3, 4))
	w.faults.Answer(func(rw http.ResponseWriter, req *http.Request, pass http.Handler) {
		mu.Lock()
		dice := r.IntN(100)
		mu.Unlock()
		switch {
		case dice < 15:
			Deny(rw, http.StatusServiceUnavailable, "SlowDown")
		case dice < 20:
			Deny(rw, http.StatusInternalServerError, "InternalError")
		case dice < 25:
			Deny(rw, http.StatusInternalServerError, "")
		case dice < 30:
			panic(http.ErrAbortHandler)
		default:
			pass.ServeHTTP(rw, req)
		}
	})
	failed := 0
	for range 30 {
		if err := w.read(t); err != nil {
			failed++
			if !errors.Is(err, bucket.ErrUnreachable) {
				t.Error(err)
			}
		}
	}
	if failed > 2 { // six times in a row of three in ten
		t.Errorf("%d of 30 reads failed", failed)
	}
}

func TestTriesAreBounded(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"503":              func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { Deny(w, 503, "SlowDown") },
		"500 without text": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { Deny(w, 500, "") },
		"404 of a proxy": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			http.Error(w, "no such route", http.StatusNotFound)
		},
		"cut":       func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
		"no object": func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(http.StatusOK) },
		"another range": func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			w.Header().Set("Content-Range", "bytes 7-10/200000")
			w.Header().Set("Content-Length", "4")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write([]byte("abcd"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := trouble(t)
			o, err := w.bucket.Open(t.Context(), "x", "")
			must(t, err)
			defer o.Close()
			before := w.faults.Requests()
			w.faults.Answer(answer)
			err = o.ReadAt(t.Context(), make([]byte, 100), 5)
			if !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrNotFound) || !strings.Contains(err.Error(), `read "x"`) {
				if name != "no object" || !errors.Is(err, bucket.ErrChanged) {
					t.Errorf("%v, want ErrUnreachable that names the object", err)
				}
			}
			// Where a connection had been idle, net/http itself makes sure that it was not just old.
			if n := w.faults.Requests() - before; n > tries && (name != "cut" || n > 2*tries) {
				t.Errorf("%d requests, at most %d are made", n, tries)
			}
		})
	}
}

func TestBodiesAreTakenUpWhereTheyWereCut(t *testing.T) {
	w := trouble(t)
	var asked []string
	var mu sync.Mutex
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if !isData(r) {
			pass.ServeHTTP(rw, r)
			return
		}
		mu.Lock()
		asked = append(asked, r.Header.Get("Range"))
		n := len(asked)
		mu.Unlock()
		if n < 12 { // more often than there are tries: each gets on
			Cut(rw, r, pass, 10_000)
		} else {
			pass.ServeHTTP(rw, r)
		}
	})
	must(t, w.read(t))
	if len(asked) != 12 || asked[0] != "bytes=0-199999" || asked[11] != "bytes=110000-199999" {
		t.Errorf("asked for %q", asked)
	}
}

func TestStalledBodiesAreGivenUp(t *testing.T) {
	w := trouble(t)
	var once atomic.Bool
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isData(r) && once.CompareAndSwap(false, true) {
			rw.Header().Set("Content-Length", "1000")
			<-r.Context().Done() // until the client has enough
			return
		}
		pass.ServeHTTP(rw, r)
	})
	must(t, w.read(t))
	if !once.Load() {
		t.Error("nothing stalled")
	}
}

func TestRefusalsAreNotTriedAgain(t *testing.T) {
	for code, c := range map[string]struct {
		status int
		header map[string]string
		say    []string
	}{
		"AccessDenied":          {403, nil, []string{"s3://data", `"x"`, "s3:GetObject", "AWS_PROFILE", "anonymous=true"}},
		"InvalidAccessKeyId":    {403, nil, []string{"s3://data", "AWS_ACCESS_KEY_ID"}},
		"SignatureDoesNotMatch": {403, nil, []string{"s3://data"}},
		"NoSuchBucket":          {404, nil, []string{"s3://data", "no such bucket", "endpoint"}},
		"PermanentRedirect":     {301, map[string]string{"X-Amz-Bucket-Region": "eu-west-7"}, []string{"add ?region=eu-west-7"}},
		"InvalidRequest":        {400, nil, []string{"InvalidRequest"}},
		"NotImplemented":        {501, nil, []string{"NotImplemented"}},
	} {
		t.Run(code, func(t *testing.T) {
			w := trouble(t)
			before := w.faults.Requests()
			w.faults.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
				for k, v := range c.header {
					rw.Header().Set(k, v)
				}
				Deny(rw, c.status, code)
			})
			_, err := w.bucket.Open(t.Context(), "x", "")
			if !errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrNotFound) {
				t.Errorf("%v, want ErrUnreachable", err)
			}
			for _, s := range c.say {
				if !strings.Contains(fmt.Sprint(err), s) {
					t.Errorf("%v: does not say %s", err, s)
				}
			}
			if n := w.faults.Requests() - before; n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

func TestAWrongRegionIsToldTheRightOne(t *testing.T) {
	w := trouble(t)
	c := quick(t, w.store)
	err := open(t, c, w.store.URL("p", "region", "eu-west-7")).List(t.Context(), "", func(bucket.Attrs) error { return nil })
	if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), "add ?region=us-east-1 to its URL") {
		t.Errorf("%v, want the region", err)
	}
}

func TestBucketsThatAreNotThereAreCalledSo(t *testing.T) {
	for name, start := range map[string]func(testing.TB) *Store{"bucket": S3, "such bucket": GCS, "container": Azure} {
		s := start(t)
		c := quick(t, s)
		err := open(t, c, strings.Replace(s.URL("p"), "://data", "://other", 1)).List(t.Context(), "", func(bucket.Attrs) error { return nil })
		if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), "there is no such ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: does not say that there is no %s", err, name)
		}
	}
}

func TestRefusedListingsSayWhatIsNeeded(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) { Deny(rw, 403, "AccessDenied") })
	err := w.bucket.List(t.Context(), "", func(bucket.Attrs) error { return nil })
	if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), "s3:ListBucket") || !strings.Contains(err.Error(), "s3://data") {
		t.Error(err)
	}
}

func TestOnlyADefiniteAnswerIsNotFound(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) { Deny(rw, 404, "NoSuchKey") })
	if err := w.read(t); !errors.Is(err, bucket.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	// A 404 that is none of the store's words may be gone the next time.
	var n atomic.Int64
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if n.Add(1) <= 2 {
			Deny(rw, 404, "")
			return
		}
		pass.ServeHTTP(rw, r)
	})
	must(t, w.read(t))
}

// Google's store says in bare text that there is no such range, as anybody in between could.
func TestARangeThatIsNotFoundMayBeThereTheNextTime(t *testing.T) {
	w := troubleIn(t, GCS(t))
	var n atomic.Int64
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Header.Get("Range") != "" && n.Add(1) <= 2 {
			rw.WriteHeader(http.StatusNotFound)
			_, _ = rw.Write([]byte("Not Found")) // the client may be gone
			return
		}
		pass.ServeHTTP(rw, r)
	})
	must(t, w.read(t))
	if n.Load() != 3 {
		t.Errorf("%d tries, want 3", n.Load())
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	w := trouble(t)
	var first, second time.Time
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if first.IsZero() {
			first = time.Now()
			rw.Header().Set("Retry-After", "1")
			Deny(rw, http.StatusTooManyRequests, "")
			return
		}
		if second.IsZero() {
			second = time.Now()
		}
		pass.ServeHTTP(rw, r)
	})
	must(t, w.read(t))
	if waited := second.Sub(first); waited < time.Second {
		t.Errorf("asked again after %s, the store said 1 s", waited)
	}
}

func TestB56AStoreThatIgnoresConditionsIsFoundOut(t *testing.T) {
	for name, header := range map[string]http.Header{
		"ETag": {"Etag": {`"other"`}}, "longer": {"Content-Range": {"bytes 0-199999/300000"}}, "shorter": {"Content-Range": {"bytes 0-199999/200"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := trouble(t)
			w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
				if isData(r) {
					rw = &rewriter{ResponseWriter: rw, header: header}
				}
				pass.ServeHTTP(rw, r)
			})
			if err := w.read(t); !errors.Is(err, bucket.ErrChanged) {
				t.Errorf("%v, want ErrChanged", err)
			}
			w.faults.Answer(nil)
			must(t, w.read(t)) // the next request is clean
		})
	}
}

func TestObjectsWithoutATagAreRefused(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/x") {
			pass.ServeHTTP(&rewriter{ResponseWriter: rw, header: http.Header{"Etag": nil}}, r)
			return
		}
		rw.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(rw, "<ListBucketResult><Contents><Key>p/x</Key><Size>200000</Size></Contents></ListBucketResult>")
	})
	if err := w.read(t); !errors.Is(err, bucket.ErrUnversioned) || errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("%v, want an error that tells why", err)
	}
	must(t, w.bucket.List(t.Context(), "", func(a bucket.Attrs) error {
		if !errors.Is(a.Err, bucket.ErrUnversioned) || a.Pin != "" {
			t.Errorf("listed as %+v", a)
		}
		return nil
	}))
}

// rewriter puts headers of its own in place of the store's.
type rewriter struct {
	http.ResponseWriter
	header http.Header
}

func (r *rewriter) WriteHeader(status int) {
	for k, v := range r.header {
		r.Header()[k] = v
	}
	r.ResponseWriter.WriteHeader(status)
}

func TestB56ReplacedWhileItIsRead(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isData(r) && r.Header.Get("Range") == "bytes=0-199999" {
			Cut(rw, r, pass, 50_000)
			return
		}
		if isData(r) {
			// Between the two halves somebody else writes.
			if err := w.direct.Put(context.Background(), "x", sample(150_000)); err != nil {
				t.Error(err)
			}
		}
		pass.ServeHTTP(rw, r)
	})
	if err := w.read(t); !errors.Is(err, bucket.ErrChanged) {
		t.Errorf("%v, want ErrChanged", err)
	}
}

func TestB59ChecksumsOfOtherStoresDoNotMatter(t *testing.T) {
	w := trouble(t)
	var mangled atomic.Int64
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.Header.Get("X-Amz-Checksum-Mode") != "" || r.Header.Get("X-Amz-Sdk-Checksum-Algorithm") != "" || strings.Contains(r.Header.Get("X-Amz-Trailer"), "checksum") {
			Deny(rw, 400, "InvalidArgument") // as stores do that have never heard of them
			return
		}
		mangled.Add(1)
		pass.ServeHTTP(&rewriter{ResponseWriter: rw, header: http.Header{"X-Amz-Checksum-Crc32": {"AAAAAA=="}, "X-Amz-Checksum-Crc64nvme": {"bad"}}}, r)
		if !strings.HasPrefix(r.URL.Path, "/data") {
			t.Errorf("the bucket is not in the path %q", r.URL.Path)
		}
	})
	must(t, w.bucket.Put(t.Context(), "x", w.want))
	must(t, w.read(t))
	if mangled.Load() == 0 {
		t.Error("no answer was mangled")
	}
}

func TestRequestsInFlightAreBounded(t *testing.T) {
	w := trouble(t, "requests", "3")
	o, err := w.bucket.Open(t.Context(), "x", "")
	must(t, err)
	defer o.Close()
	var waiting sync.WaitGroup
	waiting.Add(3)
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if w.faults.Requests() <= 4 { // one looked at the object
			waiting.Done()
			waiting.Wait() // three do come at once
		}
		pass.ServeHTTP(rw, r)
	})
	group, ctx := errgroup.WithContext(t.Context())
	for i := range 12 {
		group.Go(func() error { return o.ReadAt(ctx, make([]byte, 1000), int64(i)*1000) })
	}
	must(t, group.Wait())
	if n := w.faults.Most(); n != 3 {
		t.Errorf("%d requests at once, want 3", n)
	}
}

func TestB50PagesThatGoNowhere(t *testing.T) {
	w := trouble(t)
	page := func(rest string) func(http.ResponseWriter, *http.Request, http.Handler) {
		return func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
			rw.Header().Set("Content-Type", "application/xml")
			fmt.Fprintf(rw, `<ListBucketResult><Name>data</Name><IsTruncated>true</IsTruncated>%s</ListBucketResult>`, rest)
		}
	}
	for name, rest := range map[string]string{"without a token": "", "the same token": "<NextContinuationToken>a+b/c=</NextContinuationToken>"} {
		w.faults.Answer(page(rest))
		if err := w.bucket.List(t.Context(), "", func(bucket.Attrs) error { return nil }); !errors.Is(err, bucket.ErrUnreachable) {
			t.Errorf("%s: %v, want ErrUnreachable", name, err)
		}
	}
}

func TestB50TokensWithSigns(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		rw.Header().Set("Content-Type", "application/xml")
		next := map[string]string{"": "a+b/c=&amp;%2B d", "a+b/c=&%2B d": ""}
		token := r.URL.Query().Get("continuation-token")
		to, ok := next[token]
		if !ok {
			t.Errorf("token %q", token)
		}
		fmt.Fprintf(rw, `<ListBucketResult><IsTruncated>%v</IsTruncated><Contents><Key>p/k%d</Key><Size>1</Size><ETag>"e"</ETag></Contents>`, to != "", len(token))
		if to != "" {
			fmt.Fprintf(rw, "<NextContinuationToken>%s</NextContinuationToken>", to)
		}
		fmt.Fprint(rw, "</ListBucketResult>")
	})
	if keys, _ := Keys(t, w.bucket, ""); len(keys) != 2 {
		t.Errorf("listed %q", keys)
	}
}

func TestUnsortedListingsAreSorted(t *testing.T) {
	w := trouble(t)
	w.faults.Answer(func(rw http.ResponseWriter, _ *http.Request, _ http.Handler) {
		rw.Header().Set("Content-Type", "application/xml")
		fmt.Fprint(rw, "<ListBucketResult>")
		for _, key := range []string{"p/z", "p/a/1", "p/a", "p/b//x", "p/../y", "p/a/"} {
			fmt.Fprintf(rw, `<Contents><Key>%s</Key><Size>0</Size><ETag>"e"</ETag></Contents>`, key)
		}
		fmt.Fprint(rw, "</ListBucketResult>")
	})
	var got []string
	must(t, w.bucket.List(t.Context(), "", func(a bucket.Attrs) error {
		got = append(got, fmt.Sprintf("%s %v", a.Key, a.Err == nil))
		return nil
	}))
	want := "../y false, a true, a/ true, a/1 true, b/ true, b//x false, z true"
	if strings.Join(got, ", ") != want {
		t.Errorf("listed %s, want %s", strings.Join(got, ", "), want)
	}
}

// TestCredentialsAreRenewedInMidStream has credentials from a token that a
// platform puts into a file, as in Kubernetes: the store calls the first ones
// expired while an object is being read.
func TestCredentialsAreRenewedInMidStream(t *testing.T) {
	w := trouble(t)
	var issued atomic.Int64
	sts := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.Form.Get("WebIdentityToken") != "who I am" || r.Form.Get("RoleArn") != "arn:aws:iam::1:role/reader" {
			t.Errorf("asked for credentials with %v, %v", r.Form, err)
		}
		rw.Header().Set("Content-Type", "text/xml")
		fmt.Fprintf(rw, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
			<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>token %d</SessionToken>
			<Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			AccessKey, SecretKey, issued.Add(1), time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(func() { sts.CloseClientConnections(); sts.Close() })
	file := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(file, []byte("who I am"), 0o600))
	for k, v := range map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_ROLE_ARN": "arn:aws:iam::1:role/reader", "AWS_WEB_IDENTITY_TOKEN_FILE": file,
		"AWS_ROLE_SESSION_NAME": "headrace", "AWS_ENDPOINT_URL_STS": sts.URL,
	} {
		t.Setenv(k, v)
	}
	c := bucket.NewClients(bucket.Options{Tries: tries, Backoff: time.Millisecond})
	t.Cleanup(c.Close)
	b := open(t, c, w.store.URL("p"))
	// The real store has no tokens for sessions.
	store := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("ETag", `"e"`)
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(w.want))
	})
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		old := r.Header.Get("X-Amz-Security-Token") == "token 1"
		switch {
		case old && r.Header.Get("Range") == "bytes=0-199999":
			Cut(rw, r, store, 60_000)
		case old && isData(r):
			Deny(rw, 400, "ExpiredToken")
		default:
			store.ServeHTTP(rw, r)
		}
	})
	got, err := content(t, b, "x", "")
	if err != nil || !bytes.Equal(got, w.want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if n := issued.Load(); n != 2 {
		t.Errorf("credentials were asked for %d times, want 2", n)
	}
}

func TestWithoutCredentialsTheErrorSaysWhatToSet(t *testing.T) {
	w := trouble(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	c := bucket.NewClients(bucket.Options{Tries: tries, Backoff: time.Millisecond})
	t.Cleanup(c.Close)
	_, err := open(t, c, w.store.URL("p")).Open(t.Context(), "x", "")
	for _, s := range []string{"s3://data", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "?anonymous=true"} {
		if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), s) {
			t.Errorf("%v: does not say %s", err, s)
		}
	}
	if _, err := c.Open(w.store.URL("p", "profile", "nobody")); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a profile that is not there: %v", err)
	}
	// An anonymous reader sends no signature; this store wants one.
	_, err = open(t, c, w.store.URL("p", "anonymous", "true")).Open(t.Context(), "x", "")
	if !errors.Is(err, bucket.ErrUnreachable) || !strings.Contains(err.Error(), "403") {
		t.Errorf("anonymous: %v, want the store's refusal", err)
	}
}

func TestEventsTellEveryTry(t *testing.T) {
	w := trouble(t)
	var n atomic.Int64
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if isData(r) && n.Add(1) == 1 {
			Cut(rw, r, pass, 50_000)
			return
		}
		pass.ServeHTTP(rw, r)
	})
	var mu sync.Mutex
	var got []string
	w.bucket = w.bucket.Observed(bucket.Events{Request: func(_ context.Context, verb string) func(int64, error) {
		return func(bytes int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprintf("%s %d %v", verb, bytes, err == nil))
		}
	}})
	must(t, w.read(t))
	Keys(t, w.bucket, "")
	must(t, w.bucket.Put(t.Context(), "y", []byte("four")))
	must(t, w.bucket.Remove(t.Context(), "y"))
	if s, want := strings.Join(got, ", "), "get 0 true, get 50000 false, get 150000 true, list 0 true, put 4 true, remove 0 true"; s != want {
		t.Errorf("told %s, want %s", s, want)
	}
}

// A store that is out of order is told of, one that fails now and then, or has no such object, is not.
func TestOutagesAreTold(t *testing.T) {
	w := trouble(t)
	var told []string
	w.bucket = w.bucket.Observed(bucket.Events{
		Failed: func(store string, attempt int, err error) {
			told = append(told, fmt.Sprintf("%s %d %v", strings.SplitAfter(store, "://")[0], attempt, err))
		},
		Works: func(string) { told = append(told, "works") },
	})
	fails := 0
	w.faults.Answer(func(rw http.ResponseWriter, r *http.Request, pass http.Handler) {
		if fails--; fails >= 0 {
			Deny(rw, http.StatusServiceUnavailable, "SlowDown")
			return
		}
		pass.ServeHTTP(rw, r)
	})
	for _, c := range []struct {
		fails int
		key   string
		want  []string
	}{
		{0, "x", []string{"works", "works"}}, // it is looked at, and read
		{2, "x", []string{"works", "works"}},
		{3, "x", []string{"s3:// 3 503 SlowDown", "works", "works"}},
		{0, "none", []string{"works"}},
	} {
		told, fails = nil, c.fails
		_, err := content(t, w.bucket, c.key, "")
		if (err != nil) != (c.key == "none") || len(told) != len(c.want) {
			t.Fatalf("%v: %v, told %q", c, err, told)
		}
		for i, text := range c.want {
			if !strings.HasPrefix(told[i], text) {
				t.Errorf("%v: told %q", c, told)
			}
		}
	}
}
