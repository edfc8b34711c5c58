// Command mkramdisk builds bcd's ramdisks from source: the busybox with the Go toolchain, then each flavour.
//
//	go run ./images/ramdisk/mkramdisk
//
// It is what make ramdisk runs. On a jump host, where there is no Go, bcd ramdisk build does the second half.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/busybox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mkramdisk:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	out, work, kernel, firmware, ipxe, stub, agent string
	flavours, version                              string
	level                                          int
}

func run(ctx context.Context, stdout io.Writer, args []string) error {
	var o options
	f := flag.NewFlagSet("mkramdisk", flag.ContinueOnError)
	f.StringVar(&o.out, "out", "images/ramdisk/embed/dist", "directory for one output directory per flavour; the default is what the tag embedramdisk embeds")
	f.StringVar(&o.work, "work", ".cache/ramdisk", "directory for downloads and intermediate results, kept between runs")
	f.StringVar(&o.flavours, "flavours", ramdisk.Server+","+ramdisk.Lab, "what to build")
	f.StringVar(&o.kernel, "kernel-deb", "", "kernel package of the one flavour built, instead of a download by apt-get")
	f.StringVar(&o.firmware, "firmware-deb", "", "firmware packages, comma separated")
	f.StringVar(&o.ipxe, "ipxe", ramdisk.IPXEDir, "directories to look for iPXE programs in, comma separated")
	f.StringVar(&o.stub, "stub", ramdisk.StubDir, "directories to look for the UEFI stub in, comma separated")
	f.StringVar(&o.agent, "agent", "", "busybox to use instead of building it")
	f.StringVar(&o.version, "version", "dev", "version of bcd")
	f.IntVar(&o.level, "level", ramdisk.DefaultLevel, "zstd level, 1 to 22")
	if err := f.Parse(args); err != nil {
		return err
	}
	say := progress(stdout)
	agent, err := loadAgent(ctx, o, say)
	if err != nil {
		return err
	}
	loader, err := ramdisk.FindIPXE(split(o.ipxe)...)
	if err != nil {
		return err
	}
	stub, err := ramdisk.FindStub(split(o.stub)...)
	if err != nil {
		return err
	}
	if _, err := ramdisk.BuildGRUB(ctx, filepath.Join(o.out, ramdisk.GRUB)); err != nil {
		return err
	}
	for _, flavour := range split(o.flavours) {
		if err := buildFlavour(ctx, o, flavour, ramdisk.Config{Agent: agent, Loader: loader, Stub: stub, Progress: say}); err != nil {
			return err
		}
	}
	return nil
}

// progress stamps each line with the seconds since the start.
func progress(w io.Writer) func(string) {
	start := time.Now()
	return func(line string) { fmt.Fprintf(w, "%6.1fs %s\n", time.Since(start).Seconds(), line) }
}

func split(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func loadAgent(ctx context.Context, o options, say func(string)) (*ramdisk.Agent, error) {
	if o.agent == "" {
		o.agent = filepath.Join(o.work, "bb")
		if err := os.MkdirAll(o.work, 0o755); err != nil {
			return nil, fmt.Errorf("making the work directory: %w", err)
		}
		d, err := busybox.Build(ctx, busybox.Config{WorkDir: filepath.Join(o.work, "busybox-src"), Out: o.agent, Version: o.version})
		if err != nil {
			return nil, err
		}
		say(fmt.Sprintf("busybox: %d commands, %d modules, %s", len(d.Commands), len(d.Modules), d.Go))
	}
	return ramdisk.LoadAgent(o.agent)
}

func buildFlavour(ctx context.Context, o options, flavour string, cfg ramdisk.Config) error {
	if cfg.KernelDeb = o.kernel; cfg.KernelDeb == "" {
		name := ramdisk.GenericKernel
		if flavour == ramdisk.Lab {
			name = ramdisk.CloudKernel
		}
		var err error
		if cfg.KernelDeb, err = ramdisk.FetchDeb(ctx, name, filepath.Join(o.work, "debs")); err != nil {
			return err
		}
	}
	cfg.FirmwareDebs, cfg.Flavour, cfg.Level = split(o.firmware), flavour, o.level
	cfg.Out, cfg.CacheDir = filepath.Join(o.out, flavour), filepath.Join(o.work, "drivers")
	_, err := ramdisk.Build(ctx, cfg)
	return err
}
