package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// admin answers /healthz (the process lives), /readyz (it takes new streams) and /metrics on a port of its own.
type admin struct {
	server *http.Server
	ready  atomic.Bool
}

func newAdmin(metrics http.Handler, log *slog.Logger) *admin {
	a := &admin{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, true, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if a.ready.Load() {
			answer(w, true, "ready")
		} else {
			answer(w, false, "not ready: starting or draining")
		}
	})
	mux.Handle("GET /metrics", metrics)
	a.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return a
}

func answer(w http.ResponseWriter, ok bool, text string) {
	if !ok {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = io.WriteString(w, text+"\n")
}

// serve answers until close.
func (a *admin) serve(l net.Listener) error {
	if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (a *admin) close(ctx context.Context) { _ = a.server.Shutdown(ctx) }
