package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
)

// passphraseEnv carries a backup's passphrase for scheduled backups.
const passphraseEnv = "BCD_BACKUP_PASSPHRASE"

func backupCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "backup <file>", Short: "Write an encrypted backup of the running appliance.", Args: cobra.ExactArgs(1),
		Long: "Write a consistent backup while the appliance runs: the database, every key, and a list of the image chunks.\n" +
			"It is encrypted by age under a passphrase, asked for or taken from " + passphraseEnv + ". Images are not in it."}
	config := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		pass, err := passphrase(cmd, true)
		if err != nil {
			return err
		}
		out, err := os.OpenFile(args[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return app.Invalid("file", "%v", err).Do("name a file that does not exist yet")
		}
		err = site.Backup(cmd.Context(), f.Site.DataDir, pass, out)
		if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
			return errors.Join(err, os.Remove(args[0]))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", args[0])
		return nil
	}
	return cmd
}

func restoreCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "restore <file>", Short: "Restore a backup into an empty data directory.", Args: cobra.ExactArgs(1)}
	config := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		pass, err := passphrase(cmd, false)
		if err != nil {
			return err
		}
		in, err := os.Open(args[0])
		if err != nil {
			return app.Invalid("file", "%v", err)
		}
		defer in.Close()
		missing, err := site.Restore(cmd.Context(), in, f.Site.DataDir, pass)
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "restored into %s\n", f.Site.DataDir)
		if len(missing) > 0 {
			fmt.Fprintf(cmd.OutOrStdout(), "%d files of images are not here: copy them, or import the images again:\n  %s\n", len(missing), strings.Join(missing, "\n  "))
		}
		return nil
	}
	return cmd
}

// passphrase reads a passphrase from the environment, a terminal without echo (twice when it is new), or a line of input.
func passphrase(cmd *cobra.Command, twice bool) (string, error) {
	if p := os.Getenv(passphraseEnv); p != "" {
		return p, nil
	}
	f, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		line, err := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 4096)).ReadString('\n')
		if err != nil && line == "" {
			return "", app.Invalid("passphrase", "is missing").Do("type it, pipe it, or set " + passphraseEnv)
		}
		return strings.TrimRight(line, "\r\n"), nil
	}
	read := func(prompt string) (string, error) {
		fmt.Fprint(cmd.ErrOrStderr(), prompt)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(cmd.ErrOrStderr())
		return string(b), err
	}
	p, err := read("Passphrase: ")
	if err != nil || !twice {
		return p, err
	}
	again, err := read("Again: ")
	if err == nil && again != p {
		err = app.Invalid("passphrase", "was typed in two ways")
	}
	return p, err
}

func resetPasswordCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "reset-password <user>", Short: "Give a user a new password and end their sessions.", Args: cobra.ExactArgs(1)}
	config := configFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := site.LoadFile(*config)
		if err != nil {
			return err
		}
		pw, err := site.ResetPassword(cmd.Context(), f.Site.DataDir, args[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "new password of %s: %s\n", args[0], pw)
		return nil
	}
	return cmd
}
