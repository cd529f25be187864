package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build; builds from a checkout say "dev".
var version = "dev"

// build tells this program from all others as far as it knows: builds from a checkout by what was checked out.
func build() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version
	}
	said := version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" || s.Key == "vcs.modified" {
			said += " " + s.Value
		}
	}
	return said
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and what it was built with", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "headrace %s (%s %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return nil
			}
			for _, dep := range info.Deps {
				switch dep.Path {
				case "github.com/apache/arrow-go/v18", "google.golang.org/grpc":
					fmt.Fprintf(out, "  %s %s\n", dep.Path, dep.Version)
				}
			}
			return nil
		},
	}
}
