// Package bcx runs drivers in processes of their own: it is the SDK of plugin authors and the client of hosts. PROTOCOL.md
// explains the wire to authors in other languages.
//
// # A plugin
//
// A plugin's main hands Main the same driver.Definition that a program would register in process:
//
//	func main() { bcx.Main(bcx.Options{PluginVersion: "1.0.0"}, acme.Definition()) }
//
// Serve is the same without os.Exit. Harness runs a definition as a real plugin process in a test.
//
// # A host
//
// Host runs one plugin for programs and tests that have no supervisor of their own. A supervisor builds on the parts:
//
//	id, _ := bcx.NewIdentity()                          // ephemeral certificate of the host
//	cmd.Env = bcx.Environ(path, socketDir, id)          // the four variables of a plugin
//	hs, err := bcx.ReadHandshake(ctx, stdout)           // bounded; ends with ctx; keep draining stdout afterwards
//	err = hs.Within(socketDir)                          // unix, inside the directory the host made
//	conn, err := bcx.Dial(ctx, bcx.DialConfig{Handshake: hs, Identity: id})
//	desc, err := conn.Describe(ctx)                     // every manifest is checked; ErrProtocol for a foreign version
//	d, err := driver.Define(bcx.Remote(desc.Drivers[0], func(*driver.Context) (*bcx.Conn, error) { return conn, nil }))
//	out, err := d.Invoke(ctx, driver.Call{...})         // as with any driver
//	<-conn.Lost()                                       // the connection is gone; it never comes back by itself
//
// Remote asks for the connection at every call, so a supervisor gives the one of the process that runs now, or an
// error: driver.CodeUnavailable, retryable, while there is none. The stdin of a plugin is a pipe that stays open as long
// as the plugin should live; its end and SIGTERM ask it to stop.
//
// # Errors
//
// Everything a call can meet is a *driver.Error. The plugin's own code and message are kept, bounded and cleaned; a code
// that is not kebab-case becomes driver-error. unreachable (retryable): the connection broke while the call ran.
// timeout: its deadline passed; the host gives the plugin a second more to say so itself. bmc-error: the result is not
// JSON or is too large. driver-error: the plugin does not keep to the protocol.
package bcx
