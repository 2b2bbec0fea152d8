// Says what Talos' own code thinks of a machine config.
package main

import (
	"fmt"
	"os"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
)

// A machine in a cloud, whose disk has Talos already.
type cloud struct{}

func (cloud) String() string        { return "cloud" }
func (cloud) RequiresInstall() bool { return false }
func (cloud) InContainer() bool     { return false }

func main() {
	config, err := configloader.NewFromFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	warnings, err := config.Validate(cloud{}, validation.WithLocal(), validation.WithStrict())
	if err != nil {
		fail(err)
	}
	for _, warning := range warnings {
		fmt.Println("warning:", warning)
	}
	fmt.Println("valid for a", config.Machine().Type())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
