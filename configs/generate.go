//go:build ignore

// This program writes the configuration reference.
package main

import (
	"log"
	"os"

	"github.com/headrace/headrace/configs"
)

func main() {
	f, err := os.Create("../docs/configuration.md")
	if err == nil {
		err = configs.Reference(f)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}
