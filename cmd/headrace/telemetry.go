package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/headrace/headrace/gateway"
	"github.com/headrace/headrace/storage"
	"github.com/headrace/headrace/storage/cache"
	"github.com/headrace/headrace/storage/frame"
)

// telemetry turns the events that packages offer into spans, metrics and log lines. It owns its providers: nothing is
// registered for the whole process.
type telemetry struct {
	log      *slog.Logger
	registry *prometheus.Registry
	traces   *sdktrace.TracerProvider
	metrics  *sdkmetric.MeterProvider
	tracer   trace.Tracer
	exported bool // spans are sent somewhere

	streams                     metric.Int64UpDownCounter
	rows, bytes                 metric.Int64Counter
	refused, faults             metric.Int64Counter
	storeRequests, storeBytes   metric.Int64Counter
	columnsDecoded              metric.Int64Counter
	dataWait, clientWait        metric.Float64Histogram
	fetchSeconds, decodeSeconds metric.Float64Histogram
}

// waits are buckets in seconds from a tenth of a millisecond, a batch from memory, to a minute.
var waits = metric.WithExplicitBucketBoundaries(.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10, 30, 60)

// newTelemetry sends spans to the OTLP endpoint, a URL such as http://127.0.0.1:4317; without one, spans cost nothing.
func newTelemetry(ctx context.Context, otlp string, log *slog.Logger) (*telemetry, error) {
	t := &telemetry{log: log, registry: prometheus.NewRegistry(), exported: otlp != ""}
	about := resource.NewSchemaless(attribute.String("service.name", "headrace"), attribute.String("service.version", version))
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(about), sdktrace.WithSampler(sdktrace.NeverSample())}
	if otlp != "" {
		exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(otlp))
		if err != nil {
			return nil, fmt.Errorf("telemetry.otlp: %w", err)
		}
		options[1] = sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	t.traces = sdktrace.NewTracerProvider(options...)
	t.tracer = t.traces.Tracer("headrace")
	exporter, err := promexporter.New(promexporter.WithRegisterer(t.registry), promexporter.WithoutScopeInfo(), promexporter.WithoutTargetInfo())
	if err != nil {
		return nil, err
	}
	t.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about))
	return t, t.instruments()
}

func (t *telemetry) instruments() error {
	m := t.metrics.Meter("headrace")
	var errs [12]error
	t.streams, errs[0] = m.Int64UpDownCounter("headrace_streams", metric.WithDescription("DoGet streams running"))
	t.rows, errs[1] = m.Int64Counter("headrace_rows", metric.WithDescription("Rows sent"))
	t.bytes, errs[2] = m.Int64Counter("headrace_bytes", metric.WithDescription("Bytes of messages sent"))
	t.refused, errs[3] = m.Int64Counter("headrace_unauthenticated", metric.WithDescription("Calls without a valid identity"))
	t.faults, errs[4] = m.Int64Counter("headrace_faults", metric.WithDescription("Internal errors: bugs"))
	t.dataWait, errs[5] = m.Float64Histogram("headrace_data_wait", metric.WithUnit("s"), waits, metric.WithDescription("What a batch waited for store and decoder"))
	t.clientWait, errs[6] = m.Float64Histogram("headrace_client_wait", metric.WithUnit("s"), waits, metric.WithDescription("What a batch waited for its client"))
	t.fetchSeconds, errs[7] = m.Float64Histogram("headrace_fetch", metric.WithUnit("s"), waits, metric.WithDescription("Opening a segment"))
	t.decodeSeconds, errs[8] = m.Float64Histogram("headrace_decode", metric.WithUnit("s"), waits, metric.WithDescription("Reading and decoding a block"))
	t.storeRequests, errs[9] = m.Int64Counter("headrace_store_requests", metric.WithDescription("Tries of requests to object stores"))
	t.storeBytes, errs[10] = m.Int64Counter("headrace_store_bytes", metric.WithDescription("Bytes of objects read from object stores"))
	t.columnsDecoded, errs[11] = m.Int64Counter("headrace_columns_decoded", metric.WithDescription("Columns of Parquet row groups, by the reader that decodes them"))
	return errors.Join(errs[:]...)
}

// observe reads gauges whenever somebody looks.
func (t *telemetry) observe(pool *frame.Pool, server *gateway.Server) error {
	m := t.metrics.Meter("headrace")
	used, err1 := m.Int64ObservableGauge("headrace_memory", metric.WithUnit("By"), metric.WithDescription("Memory in use, by kind"))
	limit, err2 := m.Int64ObservableGauge("headrace_memory_limit", metric.WithUnit("By"), metric.WithDescription("Memory that streams may use"))
	reserved, err3 := m.Int64ObservableGauge("headrace_memory_reserved", metric.WithUnit("By"), metric.WithDescription("Memory held for streams, in use or not"))
	lent, err7 := m.Int64ObservableGauge("headrace_memory_lent", metric.WithUnit("By"), metric.WithDescription("Memory of that which goes back as soon as somebody waits"))
	waiting, err4 := m.Int64ObservableGauge("headrace_memory_waiting", metric.WithDescription("Streams that wait for memory"))
	queue, err5 := m.Int64ObservableGauge("headrace_queue", metric.WithUnit("By"), metric.WithDescription("Handed to gRPC and not yet sent; part of the memory in use"))
	leases, err6 := m.Int64ObservableGauge("headrace_leases", metric.WithDescription("Claims on frames"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7, t.observeCache(m, server), t.observeEpochs(m, server), t.observeDecoders(m, server)); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := server.Memory()
		for kind, n := range now.Used {
			o.ObserveInt64(used, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		o.ObserveInt64(limit, now.Limit)
		o.ObserveInt64(reserved, now.Reserved)
		o.ObserveInt64(lent, now.Lent)
		o.ObserveInt64(waiting, int64(now.Waiting))
		o.ObserveInt64(queue, now.Queued)
		o.ObserveInt64(leases, int64(pool.Stats().Leases))
		return nil
	}, used, limit, reserved, lent, waiting, queue, leases)
	return err
}

// observeCache reads what is kept, and how often it served.
func (t *telemetry) observeCache(m metric.Meter, server *gateway.Server) error {
	hits, err1 := m.Int64ObservableCounter("headrace_cache_hits", metric.WithDescription("Blocks that were there when they were needed, by tier"))
	misses, err2 := m.Int64ObservableCounter("headrace_cache_misses", metric.WithDescription("Blocks that had to be loaded"))
	loaded, err3 := m.Int64ObservableCounter("headrace_cache_loaded", metric.WithUnit("By"), metric.WithDescription("Bytes of blocks that had to be loaded, in memory"))
	kept, err4 := m.Int64ObservableGauge("headrace_cache_kept", metric.WithUnit("By"), metric.WithDescription("Bytes of blocks that are kept, by whose they are and the policy in use"))
	share, err6 := m.Float64ObservableGauge("headrace_cache_share", metric.WithDescription("Part of what is kept, below which no other tenant pushes this one"))
	waiting, err5 := m.Int64ObservableGauge("headrace_cache_waiting", metric.WithDescription("Windows that wait for a block which another one loads"))
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := server.Cache.Stats()
		for _, s := range now.Counts {
			by := []attribute.KeyValue{attribute.String("tenant", s.Tenant), attribute.String("policy", s.Policy)}
			for tier, n := range s.Hits {
				o.ObserveInt64(hits, n, metric.WithAttributes(append(by, attribute.String("tier", tier))...))
			}
			o.ObserveInt64(misses, s.Misses, metric.WithAttributes(by...))
			o.ObserveInt64(loaded, s.Loaded, metric.WithAttributes(by...))
		}
		for _, h := range now.Tenants {
			tenant := attribute.String("tenant", h.Tenant)
			o.ObserveInt64(kept, h.Kept, metric.WithAttributes(tenant, attribute.String("policy", now.Active), attribute.String("tier", cache.Memory)))
			if h.Share > 0 {
				o.ObserveFloat64(share, h.Share, metric.WithAttributes(tenant))
			}
		}
		if server.Disk != nil {
			o.ObserveInt64(kept, server.Disk.Stats().Bytes, metric.WithAttributes(attribute.String("tier", cache.Disk)))
		}
		o.ObserveInt64(waiting, int64(now.Waiting))
		return nil
	}, hits, misses, loaded, kept, share, waiting)
	return errors.Join(err, t.observeDisk(m, server))
}

// observeEpochs reads what epochs fetched against the least that they could.
func (t *telemetry) observeEpochs(m metric.Meter, server *gateway.Server) error {
	read, err1 := m.Int64ObservableCounter("headrace_epoch_read", metric.WithUnit("By"), metric.WithDescription("Bytes of blocks that epochs needed, each once an epoch, in memory"))
	fetched, err2 := m.Int64ObservableCounter("headrace_epoch_fetched", metric.WithUnit("By"), metric.WithDescription("Bytes of those that were loaded from the store"))
	least, err3 := m.Int64ObservableCounter("headrace_epoch_least", metric.WithUnit("By"), metric.WithDescription("The least that they could come down to, with all memory that streams leave"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, p := range server.Passes().Sums {
			by := metric.WithAttributes(attribute.String("tenant", p.Tenant), attribute.String("dataset", p.Dataset))
			o.ObserveInt64(read, p.Read, by)
			o.ObserveInt64(fetched, p.Fetched, by)
			o.ObserveInt64(least, p.Least, by)
		}
		return nil
	}, read, fetched, least)
	return err
}

// observeDisk reads what becomes of blocks that are to be kept on disk, if they are.
func (t *telemetry) observeDisk(m metric.Meter, server *gateway.Server) error {
	if server.Disk == nil {
		return nil
	}
	kept, err1 := m.Int64ObservableGauge("headrace_disk_blocks", metric.WithDescription("Blocks that are kept on disk"))
	waiting, err2 := m.Int64ObservableGauge("headrace_disk_waiting", metric.WithDescription("Blocks that are to be written to disk"))
	outcomes, err3 := m.Int64ObservableCounter("headrace_disk_outcomes", metric.WithDescription("What became of blocks: written; dropped, since memory gave them up before; refused, for want of room; evicted; damaged"))
	faults, err4 := m.Int64ObservableCounter("headrace_disk_errors", metric.WithDescription("Errors of the disk that blocks are kept on"))
	failing, err5 := m.Int64ObservableGauge("headrace_disk_failing", metric.WithDescription("1 while the disk cannot be used, else 0"))
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := server.Disk.Stats()
		o.ObserveInt64(kept, int64(now.Blocks))
		o.ObserveInt64(waiting, int64(now.Waiting))
		for outcome, n := range map[string]int64{
			"written": now.Written, "dropped": now.Dropped, "refused": now.Refused, "evicted": now.Evicted, "damaged": now.Damaged,
		} {
			o.ObserveInt64(outcomes, n, metric.WithAttributes(attribute.String("outcome", outcome)))
		}
		o.ObserveInt64(faults, now.Errors)
		fails := int64(0)
		if now.Failed != "" {
			fails = 1
		}
		o.ObserveInt64(failing, fails)
		return nil
	}, kept, waiting, outcomes, faults, failing)
	return err
}

// observeDecoders reads how many blocks are being decoded, and how many wait for that.
func (t *telemetry) observeDecoders(m metric.Meter, server *gateway.Server) error {
	decoders, err1 := m.Int64ObservableGauge("headrace_decoders", metric.WithDescription("Decoders"))
	busy, err2 := m.Int64ObservableGauge("headrace_decoders_busy", metric.WithDescription("Blocks that are being decoded"))
	waiting, err3 := m.Int64ObservableGauge("headrace_decoders_waiting", metric.WithDescription("Blocks that wait for a decoder"))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	_, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := server.Decoding("")
		o.ObserveInt64(decoders, int64(now.Decoders))
		o.ObserveInt64(busy, int64(now.Busy))
		o.ObserveInt64(waiting, int64(now.Waiting))
		return nil
	}, decoders, busy, waiting)
	return err
}

// handler serves the metrics in Prometheus' text format.
func (t *telemetry) handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{})
}

// serverOption makes one span for each RPC, a child of the client's traceparent.
func (t *telemetry) serverOption() grpc.ServerOption {
	return grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.traces),
		otelgrpc.WithMeterProvider(t.metrics),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	))
}

// close flushes what is still to be exported.
func (t *telemetry) close(ctx context.Context) error {
	return errors.Join(t.traces.Shutdown(ctx), t.metrics.Shutdown(ctx))
}

// span begins a child of the RPC's span, if anybody will see it: streams begin two for every block.
func (t *telemetry) span(ctx context.Context, name string, attributes ...attribute.KeyValue) (context.Context, func(error)) {
	if !t.exported {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// gatewayEvents are what the gateway tells.
func (t *telemetry) gatewayEvents() gateway.Events {
	return gateway.Events{
		Span:   func(ctx context.Context, stage string) (context.Context, func(error)) { return t.span(ctx, stage) },
		Stream: t.stream,
		Refused: func(ctx context.Context, method, cause string) {
			t.refused.Add(ctx, 1)
			t.log.WarnContext(ctx, "unauthenticated", "method", method, "cause", cause)
		},
		Audit: t.audit,
		Fault: func(ctx context.Context, id string, err error) {
			t.faults.Add(ctx, 1)
			t.log.ErrorContext(ctx, "internal error", "id", id, "error", err.Error())
		},
	}
}

// stream counts a stream, and what it sends. Its attributes are put together once, not for every batch.
func (t *telemetry) stream(call context.Context, r gateway.Read) (func(gateway.Sent), func(error)) {
	ctx := context.WithoutCancel(call)
	whose := []attribute.KeyValue{attribute.String("tenant", r.Tenant), attribute.String("dataset", r.Dataset)}
	set := metric.WithAttributeSet(attribute.NewSet(whose...))
	via := func(what string) []metric.AddOption {
		return []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(append(whose, attribute.String("via", what))...))}
	}
	wire, memory := via("wire"), via("memory")
	add, record := []metric.AddOption{set}, []metric.RecordOption{set}
	t.streams.Add(ctx, 1, add...)
	sent := func(b gateway.Sent) {
		t.rows.Add(ctx, b.Rows, add...)
		t.bytes.Add(ctx, b.Bytes-b.Shared, wire...)
		if b.Shared > 0 {
			t.bytes.Add(ctx, b.Shared, memory...)
		}
		t.dataWait.Record(ctx, b.DataWait.Seconds(), record...)
		t.clientWait.Record(ctx, b.SendWait.Seconds(), record...)
	}
	return sent, func(err error) {
		t.streams.Add(ctx, -1, add...)
		if err != nil && call.Err() == nil { // else the client has left, which is its own business
			t.log.LogAttrs(ctx, slog.LevelWarn, "stream ended early", append(planned(r), slog.String("error", err.Error()))...)
		}
	}
}

// audit writes one line for every read that was allowed or refused.
func (t *telemetry) audit(ctx context.Context, r gateway.Read, err error) {
	if err != nil {
		t.log.LogAttrs(ctx, slog.LevelWarn, "read refused", append(asked(r), slog.String("error", err.Error()))...)
		return
	}
	t.log.LogAttrs(ctx, slog.LevelInfo, "read", planned(r)...)
}

// asked is what the log says of a request.
func asked(r gateway.Read) []slog.Attr {
	return []slog.Attr{
		slog.String("method", r.Method), slog.String("subject", r.Subject), slog.String("tenant", r.Tenant),
		slog.String("dataset", r.Dataset), slog.Any("columns", r.Columns),
	}
}

// planned is what it says of one that passed its plan.
func planned(r gateway.Read) []slog.Attr {
	return append(asked(r), slog.String("snapshot", r.Snapshot), slog.String("plan", r.Plan), slog.Int64("rows", r.Rows))
}

// storageEvents are what storage tells.
func (t *telemetry) storageEvents() storage.Events {
	return storage.Events{
		Load: func(ctx context.Context, object string, segment int) (context.Context, func(error)) {
			began := time.Now()
			ctx, end := t.span(ctx, "load", attribute.String("object", object), attribute.Int("segment", segment))
			return ctx, func(err error) {
				t.fetchSeconds.Record(ctx, time.Since(began).Seconds())
				end(err)
			}
		},
		Request: t.request,
		Failed: func(mount, store string, attempt int, err error) {
			t.log.Warn("a store does not answer as it should; requests are tried again", "mount", mount, "store", store, "attempt", attempt, "error", err.Error())
		},
		Works: func(mount, store string, after time.Duration) {
			t.log.Info("the store answers again", "mount", mount, "store", store, "after", after.Round(time.Millisecond).String())
		},
		Archive: func(ctx context.Context, dataset string, err error) {
			t.log.WarnContext(ctx, "snapshots are not kept as they should be; cursors may end with this process", "dataset", dataset, "error", err.Error())
		},
		Columns: func(ctx context.Context, reader string, n int) {
			t.columnsDecoded.Add(ctx, int64(n), metric.WithAttributes(attribute.String("reader", reader)))
		},
		Decode: func(ctx context.Context, object string, rows int64) (context.Context, func(int64, error)) {
			began := time.Now()
			ctx, end := t.span(ctx, "decode", attribute.String("object", object), attribute.Int64("rows", rows))
			return ctx, func(_ int64, err error) {
				t.decodeSeconds.Record(ctx, time.Since(began).Seconds())
				end(err)
			}
		},
	}
}

// request counts a try of a request to the store of a mount. Listings and footers that nobody's stream asked for have no tenant.
func (t *telemetry) request(ctx context.Context, mount, verb string) func(int64, error) {
	return func(bytes int64, err error) {
		ctx, outcome := context.WithoutCancel(ctx), "ok"
		if err != nil {
			outcome = "failed"
		}
		whose := []attribute.KeyValue{attribute.String("mount", mount), attribute.String("tenant", gateway.Tenant(ctx))}
		if verb == "get" {
			t.storeBytes.Add(ctx, bytes, metric.WithAttributes(whose...))
		}
		t.storeRequests.Add(ctx, 1, metric.WithAttributes(append(whose, attribute.String("verb", verb), attribute.String("outcome", outcome))...))
	}
}

// tracedHandler adds the ids of the span in the context to every log line.
type tracedHandler struct{ slog.Handler }

func (h tracedHandler) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h tracedHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return tracedHandler{h.Handler.WithAttrs(a)}
}

func (h tracedHandler) WithGroup(n string) slog.Handler { return tracedHandler{h.Handler.WithGroup(n)} }
