package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http/cookiejar"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// tokenLife is how long a command line stays logged in.
const tokenLife = 90 * 24 * time.Hour

// loginCommand trusts an appliance's key after showing it, logs in, and keeps an API token instead of the password.
func loginCommand() *cobra.Command {
	var pin, user string
	cmd := &cobra.Command{Use: "login <https://appliance:8443>", Short: "Log in to an appliance.", Args: cobra.ExactArgs(1), GroupID: "client"}
	cmd.Flags().StringVar(&pin, "pin", "", "the key's SHA-256 as the appliance printed it at its first start; else it is shown and asked about")
	cmd.Flags().StringVarP(&user, "user", "u", "", "user name")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in := bufio.NewReader(cmd.InOrStdin())
		pin, err := trust(cmd, in, args[0], pin)
		if err != nil {
			return err
		}
		if user == "" {
			if user, err = ask(cmd.ErrOrStderr(), in, "User: "); err != nil {
				return err
			}
		}
		password, err := askPassword(cmd.ErrOrStderr(), cmd.InOrStdin(), in)
		if err != nil {
			return err
		}
		l := client.Login{URL: strings.TrimRight(args[0], "/"), Pin: pin}
		if l.Token, err = newToken(cmd, l, user, password); err != nil {
			return err
		}
		if err := l.Save(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "logged in to %s as %s until %s\n", l.URL, user, time.Now().Add(tokenLife).Format("2006-01-02"))
		return nil
	}
	return cmd
}

func trust(cmd *cobra.Command, in *bufio.Reader, url, pin string) (string, error) {
	seen, err := client.SeePin(cmd.Context(), url)
	if err != nil {
		return "", err
	}
	if pin != "" {
		if !strings.EqualFold(pin, seen) {
			return "", app.Errorf(app.Unauthenticated, "tls-pin-mismatch", "the appliance shows the key %s", seen).At("pin").Do("compare it with what the appliance printed at its first start")
		}
		return seen, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "The appliance shows the key\n  %s\nIt prints the same at its first start and on its Settings page.\n", seen)
	answer, err := ask(cmd.ErrOrStderr(), in, "Trust it? [y/N] ")
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(strings.ToLower(answer), "y") {
		return "", app.Errorf(app.Forbidden, "not-trusted", "nothing was sent")
	}
	return seen, nil
}

func ask(out io.Writer, in *bufio.Reader, prompt string) (string, error) {
	fmt.Fprint(out, prompt)
	line, err := in.ReadString('\n')
	if err != nil && line == "" {
		return "", app.Invalid("input", "ended before an answer came")
	}
	return strings.TrimSpace(line), nil
}

// askPassword reads without echo from a terminal, else a line of the input.
func askPassword(out io.Writer, raw io.Reader, in *bufio.Reader) (string, error) {
	if f, ok := raw.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(out, "Password: ")
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(out)
		return string(b), err
	}
	return ask(out, in, "Password: ")
}

func newToken(cmd *cobra.Command, l client.Login, user, password string) (string, error) {
	c, err := client.New(l)
	if err != nil {
		return "", err
	}
	if c.HTTP.Jar, err = cookiejar.New(nil); err != nil {
		return "", err
	}
	answer, err := c.Do(cmd.Context(), "POST", "/api/v1/session", nil, api.LoginInput{Name: user, Password: password})
	if err != nil {
		return "", err
	}
	var who api.Whoami
	if err := json.Unmarshal(answer, &who); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	answer, err = c.Do(cmd.Context(), "POST", "/api/v1/tokens", nil, map[string]any{
		"name": "cli-" + host, "permissions": who.Permissions, "expires": time.Now().Add(tokenLife).UTC().Format(time.RFC3339)})
	if err != nil {
		return "", err
	}
	var made struct {
		Token string `json:"token"`
	}
	if err := json.Unmarshal(answer, &made); err != nil || made.Token == "" {
		return "", app.Errorf(app.Internal, "no-token", "the appliance gave no token")
	}
	_, err = c.Do(cmd.Context(), "DELETE", "/api/v1/session", nil, nil)
	return made.Token, err
}

// logoutCommand forgets the login on this side; the token dies by its expiry or on the Access page.
func logoutCommand() *cobra.Command {
	return &cobra.Command{Use: "logout", Short: "Forget the appliance on this computer.", Args: cobra.NoArgs, GroupID: "client",
		RunE: func(*cobra.Command, []string) error {
			file, err := client.File()
			if err != nil {
				return err
			}
			if err := os.Remove(file); err != nil && !os.IsNotExist(err) {
				return fmt.Errorf("forgetting the login: %w", err)
			}
			return nil
		}}
}
