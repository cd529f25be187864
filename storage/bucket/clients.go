package bucket

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Options of Clients. What is zero is filled in.
type Options struct {
	// Env looks up a variable of the environment: Azure's account and keys are
	// named there. Nil: there are none.
	Env func(name string) string
	// Requests bounds the requests in flight to one bucket; 64.
	Requests int
	// Tries bounds how often in a row a request fails to bring a byte; 10.
	Tries int
	// Backoff is waited at most before the second try, doubled for each later
	// one, up to 100 times as long; 100 ms.
	Backoff time.Duration
	// Patience is how long a request may bring nothing before it is given up
	// and tried again; 30 s.
	Patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Env == nil {
		o.Env = func(string) string { return "" }
	}
	if o.Requests == 0 {
		o.Requests = 64
	}
	if o.Tries == 0 {
		o.Tries = 10
	}
	if o.Backoff == 0 {
		o.Backoff = 100 * time.Millisecond
	}
	if o.Patience == 0 {
		o.Patience = 30 * time.Second
	}
	return o
}

// Clients keeps one client for each bucket in a store, so that all who read it
// share its connections, its credentials and its bound on requests. It is safe
// for concurrent use.
type Clients struct {
	options Options
	mu      sync.Mutex
	known   map[string]*remote
}

// NewClients makes an empty set of clients.
func NewClients(o Options) *Clients {
	return &Clients{options: o.withDefaults(), known: map[string]*remote{}}
}

// Open opens what a path or a URL leads to: a folder at once, a bucket in a
// store when the first request is made.
//
//	/path, file:///path
//	s3://BUCKET/PREFIX?region=&endpoint=&s3ForcePathStyle=&anonymous=&profile=&requests=
//	gs://BUCKET/PREFIX?endpoint=&anonymous=&requests=
//	azblob://CONTAINER/PREFIX?account=&endpoint=&anonymous=&requests=
//	mem://NAME/PREFIX, which is empty at first and gone with the Clients
func (c *Clients) Open(url string) (*Bucket, error) {
	a, err := parse(url)
	if err != nil {
		return nil, err
	}
	if a.scheme == "file" {
		f, err := openFolder(a.path)
		if err != nil {
			return nil, err
		}
		return &Bucket{local: f, close: f.root.Close}, nil
	}
	r, err := c.remote(a)
	if err != nil {
		return nil, fmt.Errorf("%w: open bucket %s://%s: %w", ErrUnreachable, a.scheme, a.name, err)
	}
	return &Bucket{remote: r, under: a.prefix, close: func() error { return nil }}, nil
}

// Requests returns how many requests may be in flight to what a URL leads to.
func (c *Clients) Requests(url string) int {
	a, err := parse(url)
	if err != nil {
		return c.options.Requests
	}
	return c.requests(a)
}

func (c *Clients) requests(a *address) int {
	if n, err := strconv.Atoi(a.query.Get("requests")); err == nil {
		return n
	}
	return c.options.Requests
}

// Close closes idle connections. Buckets opened here must not be used any more.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.known {
		r.idle()
	}
	c.known = map[string]*remote{}
}

func (c *Clients) remote(a *address) (*remote, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.known[a.server()]; r != nil {
		return r, nil
	}
	o := c.options
	o.Requests = c.requests(a)
	r := &remote{name: a.scheme + "://" + a.name, options: o, slots: make(chan struct{}, o.Requests), idle: func() {}}
	var err error
	switch a.scheme {
	case "s3":
		r.store, r.idle, err = openS3(context.Background(), a, o)
	case "gs":
		r.store, r.idle = openGCS(a, o)
	case "azblob":
		r.store, r.idle, err = openAzure(a, o)
	default:
		r.store = newMemory()
	}
	if err != nil {
		return nil, err
	}
	c.known[a.server()] = r
	return r, nil
}
