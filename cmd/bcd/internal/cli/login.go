package cli

import (
	"encoding/json"
	"fmt"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
		in := newPrompt(cmd.InOrStdin(), cmd.ErrOrStderr())
		pin, err := trust(cmd, in, args[0], pin)
		if err != nil {
			return err
		}
		if user == "" {
			if user, err = in.line("User: "); err != nil {
				return err
			}
		}
		password, err := in.secret("Password: ")
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

func trust(cmd *cobra.Command, in *prompt, url, pin string) (string, error) {
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
	answer, err := in.line("Trust it? [y/N] ")
	if err != nil {
		return "", err
	}
	if !strings.HasPrefix(strings.ToLower(answer), "y") {
		return "", app.Errorf(app.Forbidden, "not-trusted", "the key was not trusted, so nothing was sent").Do("answer y once you have compared it")
	}
	return seen, nil
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
	answer, err = c.Do(cmd.Context(), "POST", "/api/v1/tokens", nil, api.TokenInput{
		Name: tokenName(host), Permissions: who.Permissions, ExpiresIn: app.Duration(tokenLife)})
	if err != nil {
		return "", err
	}
	var made api.NewToken
	if err := json.Unmarshal(answer, &made); err != nil || made.Value == "" {
		return "", app.Errorf(app.Internal, "no-token", "the appliance gave no token")
	}
	_, err = c.Do(cmd.Context(), "DELETE", "/api/v1/session", nil, nil)
	return made.Value, err
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// tokenName is the name of the token that this computer gets: host names hold dots and capitals, names of tokens do not.
func tokenName(host string) string {
	name := "cli-" + strings.Trim(notInNames.ReplaceAllString(strings.ToLower(host), "-"), "-")
	return strings.TrimRight(name[:min(len(name), 63)], "-")
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
