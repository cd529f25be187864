package frame

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or plays a part in one of them as a process of its own.
func TestMain(m *testing.M) {
	if part := parts[os.Getenv("HEADRACE_TEST_PART")]; part != nil {
		if err := part(os.Getenv("HEADRACE_TEST_FILE")); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// parts are what a process can be told to do with a file.
var parts = map[string]func(path string) error{}
