package e2e

import "testing"

// What comes in shared memory is counted apart, and a batch that is in use stays as it is when its stream ends or is left.
func TestSharedMemory(t *testing.T) {
	s := serve(t, folders(t))
	python(t, `read(fl.connect(sys.argv[1]), dataset="words")`, s.uri)
	wire := s.metric("headrace_bytes_total", `dataset="words"`, `via="wire"`)
	if memory := s.metric("headrace_bytes_total", `via="memory"`); wire == 0 || memory != 0 {
		t.Errorf("%v bytes over the wire, %v in memory, of a client that knows nothing of it", wire, memory)
	}
	python(t, `
import headrace, time
client = headrace.connect(sys.argv[1])
options = dict(shuffle=True, batch_size=5000, window_blocks=3)

whole = client.stream("words", **options)
kept = [(batch, batch.to_pydict()) for batch in whole]
assert whole.stats().shared > 0 and sum(batch.num_rows for batch, _ in kept) == 60_021

left = client.stream("words", **options)
for batch in left:
    kept.append((batch, batch.to_pydict()))
    break
left.close()
time.sleep(0.5)  # what the gateway does about streams that have ended it does at once
for batch, was in kept:
    assert batch.to_pydict() == was
`, s.uri)
	if memory := s.metric("headrace_bytes_total", `dataset="words"`, `tenant="local"`, `via="memory"`); memory == 0 {
		t.Error("no bytes in memory")
	}
	if more := s.metric("headrace_bytes_total", `via="wire"`); more != wire {
		t.Errorf("%v bytes over the wire, were %v", more, wire)
	}
}
