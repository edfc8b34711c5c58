package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/api"
)

// leaveTime bounds how long the appliance may take to let go of a console that was left.
const leaveTime = 20 * time.Second

// consoleCommand opens a machine's serial console.
func consoleCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "console <machine>", Short: "Open a machine's serial console in this terminal.",
		Long: "Open a machine's serial console in this terminal.\n\n" +
			"Every key goes to the machine, Ctrl-C too. At the start of a line, ~. leaves, ~? shows help and ~~ types one ~.\n" +
			"What the machine prints, and who had the console open, is kept on its timeline.\n\n" +
			"With input that is no terminal, all of it is typed, line ends as the Enter key, and then the console is left.",
		Example: "  bcd machine console node-1\n" +
			"  bcd machine console node-1 --take\n" +
			"  echo uptime | bcd machine console node-1 --linger 2s\n" +
			"  bcd machine console node-1 --linger 0 </dev/null | tee node-1.log",
		Args: cobra.ExactArgs(1)}
	take := cmd.Flags().Bool("take", false, "take it over from whoever has it open")
	linger := cmd.Flags().Duration("linger", 5*time.Second, "with input that is no terminal: leave when it has ended and the machine has printed nothing for this long; 0 stays")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *linger < 0 {
			return usageError(cmd, "--linger is no time before now")
		}
		c, err := connect()
		if err != nil {
			return err
		}
		s := &consoleSession{cmd: cmd, name: args[0], linger: *linger}
		return s.run(c, *take)
	}
	return cmd
}

// consoleSession is one open console.
type consoleSession struct {
	cmd    *cobra.Command
	name   string
	linger time.Duration

	tty   *terminal // nil: the input is none
	keys  *io.PipeWriter
	quiet quiet
	amid  atomic.Bool // a line that the machine began has no end yet
}

func (s *consoleSession) run(c *client.Client, take bool) error {
	ctx, stop := signal.NotifyContext(s.cmd.Context(), syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE) // each would leave the terminal as it is
	defer stop()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	typed, keys := io.Pipe()
	s.keys = keys
	defer keys.Close()
	header := http.Header{"Content-Type": {"application/octet-stream"}}
	if take {
		header.Set(api.ConsoleTake, "true")
	}
	resp, err := c.Open(ctx, http.MethodPost, "/api/v1/machines/"+url.PathEscape(s.name)+"/console", nil, typed, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if s.tty, err = openTerminal(s.cmd.InOrStdin(), s.cmd.OutOrStdout()); err != nil {
		return err
	}
	defer s.tty.restore()
	s.greet(resp.Header.Get(api.ConsoleHead))
	left, printed := make(chan error, 1), make(chan error, 1)
	s.tty.guard(func() { left <- s.typing() })
	s.tty.guard(func() { printed <- s.printing(resp) })
	return s.wait(ctx, left, printed)
}

// wait waits for the end.
func (s *consoleSession) wait(ctx context.Context, left, printed <-chan error) error {
	var late <-chan time.Time
	for {
		select {
		case err := <-left:
			if err != nil {
				return err
			}
			late = time.After(leaveTime)
		case err := <-printed:
			if err == nil {
				s.say("the console of %s is closed", s.name)
			}
			return err
		case <-late:
			s.say("the console of %s was left, and the appliance did not say in time that it is closed", s.name)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// say tells the person something, on a line of its own.
func (s *consoleSession) say(format string, args ...any) {
	if s.amid.Swap(false) {
		s.tty.line(s.cmd.ErrOrStderr(), "")
	}
	s.tty.line(s.cmd.ErrOrStderr(), Printable(fmt.Sprintf(format, args...)))
}

// greet says what was connected to.
func (s *consoleSession) greet(head string) {
	var state api.ConsoleState
	if json.Unmarshal([]byte(head), &state) != nil {
		state.Machine = s.name
	}
	var through []string
	if state.Driver != "" {
		through = append(through, "through "+state.Driver)
	}
	if state.BMC != "" {
		through = append(through, "at "+state.BMC)
	}
	if state.Holder != "" {
		through = append(through, "as "+state.Holder)
	}
	s.say("connected to the serial console of %s", strings.Join(append([]string{state.Machine}, through...), " "))
	if s.tty != nil {
		s.say("~. at the start of a line leaves, ~? shows help")
	}
}

// help is what ~? shows.
func (s *consoleSession) help() {
	s.say("at the start of a line: ~. leaves, ~~ types one ~, ~? shows this; every other key goes to the machine")
	if rows, columns := s.tty.size(); rows > 0 {
		s.say("a serial line does not know this terminal's size; tell the machine's shell: stty rows %d cols %d", rows, columns)
	}
}

// typing sends what is typed until the console is to be left.
func (s *consoleSession) typing() error {
	in, b, cr := s.cmd.InOrStdin(), make([]byte, 4<<10), false
	keys := escapes{lineStart: true, help: s.help}
	for {
		n, err := in.Read(b)
		var text []byte
		leave := false
		if s.tty != nil {
			text, leave = keys.take(b[:n])
		} else {
			text = enters(b[:n], &cr)
		}
		if len(text) > 0 {
			if _, err := s.keys.Write(text); err != nil {
				return nil // the appliance takes no more; its answer says why
			}
		}
		switch {
		case leave, errors.Is(err, io.EOF) && s.tty != nil:
			return s.keys.Close()
		case errors.Is(err, io.EOF):
			<-s.quiet.passed(s.linger)
			return s.keys.Close()
		case err != nil:
			return fmt.Errorf("reading what is typed: %w", err)
		}
	}
}

// printing shows what the machine prints until the console ends. nil: it was left.
func (s *consoleSession) printing(resp *http.Response) error {
	b := make([]byte, 16<<10)
	for {
		n, err := resp.Body.Read(b)
		if n > 0 {
			s.quiet.disturb(s.linger)
			s.amid.Store(b[n-1] != '\n')
			if _, err := s.cmd.OutOrStdout().Write(b[:n]); err != nil {
				return fmt.Errorf("showing what the machine prints: %w", err)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return endOf(resp.Trailer.Get(api.ConsoleEnd))
		case err != nil:
			return app.Errorf(app.Unavailable, client.ReasonCutOff, "the connection to the appliance broke off: %w", err).Do("open it again: bcd machine console %s", s.name).Retryable()
		}
	}
}

// endOf reads the error that a console ended with.
func endOf(trailer string) error {
	if trailer == "" {
		return nil
	}
	var e app.Error
	if json.Unmarshal([]byte(trailer), &e) != nil || e.Message == "" {
		return app.Errorf(app.Unavailable, client.ReasonCutOff, "the console ended, for a reason that this version of bcd cannot read").Do("use the version that the appliance runs: bcd version show")
	}
	return &e
}
