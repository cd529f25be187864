package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// slowLink is a way to a server over which answers come late, and all of them together no faster than so many bytes a
// second. (The proxy of the stores bench limits each connection for itself.)
type slowLink struct {
	listener net.Listener
	server   string
	latency  time.Duration
	rate     float64 // bytes a second
	work     sync.WaitGroup

	mu    sync.Mutex
	sent  float64   // bytes that were let through
	free  time.Time // when that is over
	conns map[net.Conn]struct{}
}

// startLink starts one; end ends it.
func startLink(server string, latency time.Duration, rate float64) (l *slowLink, end func(), err error) {
	l = &slowLink{server: server, latency: latency, rate: rate, conns: map[net.Conn]struct{}{}}
	if l.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.work.Go(func() { l.accept(ctx) })
	return l, func() {
		cancel()
		_ = l.listener.Close()
		l.mu.Lock()
		for c := range l.conns {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.work.Wait()
	}, nil
}

func (l *slowLink) address() string { return l.listener.Addr().String() }

// bytes is how many came from the server so far.
func (l *slowLink) bytes() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

func (l *slowLink) accept(ctx context.Context) {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		var dialer net.Dialer
		server, err := dialer.DialContext(ctx, "tcp", l.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		l.mu.Lock()
		l.conns[client], l.conns[server] = struct{}{}, struct{}{}
		l.mu.Unlock()
		if ctx.Err() != nil { // it ended meanwhile: nobody else closes them
			_ = errors.Join(client.Close(), server.Close())
			return
		}
		l.work.Go(func() { // a connection that breaks ends both ways
			_, _ = io.Copy(server, client)
			_ = errors.Join(client.Close(), server.Close())
		})
		l.work.Go(func() {
			_ = l.answer(client, server)
			_ = errors.Join(client.Close(), server.Close())
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.conns, client)
			delete(l.conns, server)
		})
	}
}

// parcel is some bytes on their way, and when they may arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// answer passes on what comes from the server.
func (l *slowLink) answer(client, server net.Conn) error {
	flying := make(chan parcel, 64) // 4 MiB: what a connection may have under way
	var work sync.WaitGroup
	defer work.Wait()
	defer func() { _ = server.Close() }() // so that nothing more is put into flying
	work.Go(func() {
		defer close(flying)
		for {
			p := parcel{bytes: make([]byte, 64<<10)}
			n, err := server.Read(p.bytes)
			if p.bytes, p.due = p.bytes[:n], time.Now().Add(l.latency); n > 0 {
				flying <- p
			}
			if err != nil {
				return
			}
		}
	})
	var failed error
	for p := range flying {
		if failed != nil {
			continue
		}
		time.Sleep(time.Until(p.due))
		time.Sleep(time.Until(l.pass(len(p.bytes))))
		if _, err := client.Write(p.bytes); err != nil {
			failed = errors.Join(err, server.Close())
		}
	}
	return failed
}

// pass tells when so many bytes are through.
func (l *slowLink) pass(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.sent += float64(n)
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	return l.free
}
