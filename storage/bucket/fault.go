package bucket

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// verdict is what a fault says of the object.
type verdict int

const (
	trouble     verdict = iota // nothing
	absent                     // there is none
	replaced                   // it is not the version asked for
	unversioned                // nobody could tell its versions apart
)

// fault is what went wrong with one try of a request.
type fault struct {
	status  int    // of the HTTP answer; 0: there was none
	code    string // the store's own name for it
	text    string
	what    verdict
	final   bool          // trying again is of no use
	expired bool          // other credentials may help
	after   time.Duration // the store asks to wait so long
	cause   error
}

func (f *fault) Error() string {
	var parts []string
	if f.status != 0 {
		parts = append(parts, fmt.Sprint(f.status))
	}
	if f.code != "" {
		parts = append(parts, f.code)
	}
	text := f.text
	if text == "" && f.cause != nil {
		text = f.cause.Error()
	}
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	if text == "" {
		return strings.Join(parts, " ")
	}
	if len(parts) == 0 {
		return text
	}
	return strings.Join(parts, " ") + ": " + text
}

// maxText bounds what is passed on of a store's own words.
const maxText = 300

func (f *fault) Unwrap() error { return f.cause }

// expiries are codes by which stores say that credentials were good once.
var expiries = []string{"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"}

// passing are codes of answers that are no client's fault whatever their status.
var passing = []string{"RequestTimeout", "RequestTimeTooSkewed", "SlowDown", "ServerBusy", "InternalError", "OperationTimedOut"}

// answered makes a fault of an HTTP answer. none are the codes by which the
// store says that there is no such object: a bare 404 may come from anything in
// between, so it is asked again before it is believed to be some trouble.
func answered(status int, code, text string, header http.Header, cause error, none ...string) *fault {
	f := &fault{status: status, code: code, text: text, after: retryAfter(header), cause: cause}
	switch {
	case has(none, code):
		f.what, f.final = absent, true
	case has(expiries, code):
		f.expired = true
	case has(passing, code):
	case status == http.StatusNotFound && code == "":
		f.text = cmp.Or(text, "not in the words of such a store: is there one at this address?")
	case status == http.StatusPreconditionFailed, status == http.StatusRequestedRangeNotSatisfiable:
		f.what, f.final = replaced, true
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests:
	case status >= 300 && status < 500, status == http.StatusNotImplemented:
		f.final = true
	}
	return f
}

func has(all []string, code string) bool {
	for _, c := range all {
		if c == code && code != "" {
			return true
		}
	}
	return false
}

// maxAfter bounds how long a store can make us wait before one try.
const maxAfter = 30 * time.Second

func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return min(time.Duration(n)*time.Second, maxAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(at)), maxAfter)
	}
	return 0
}

// faultOf makes a fault of whatever error a try ended with.
func faultOf(err error) *fault {
	var f *fault
	if !errors.As(err, &f) {
		f = &fault{cause: err}
	}
	var sent *url.Error
	if f.status == 0 && f.text == "" && errors.As(err, &sent) {
		// Not the whole URL: it may hold a signature.
		f.text, f.final = sent.Err.Error(), f.final || hopeless(sent.Err)
		if u, err := url.Parse(sent.URL); err == nil {
			f.text = "no answer from " + u.Scheme + "://" + u.Host + ": " + f.text
		}
	}
	return f
}

// hopeless tells whether no server that is wanted can be at an address.
func hopeless(err error) bool {
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	return errors.As(err, &name) && name.IsNotFound || errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// errStalled ends a try that brings nothing for too long.
var errStalled = errors.New("nothing came for too long")

// watched returns a context that ends with errStalled unless alive is called
// often enough, and stop, which must be called.
func watched(ctx context.Context, patience time.Duration) (_ context.Context, alive func(), stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { cancel(errStalled) })
	return ctx, func() { timer.Reset(patience) }, func() {
		timer.Stop()
		cancel(context.Canceled)
	}
}
