package bcx

import (
	"errors"
	"time"
)

// ProtocolVersion is the version of bcx that this package speaks.
const ProtocolVersion = 1

// What a host puts into the environment of a plugin, besides PATH.
const (
	EnvCookie     = "BCX_MAGIC_COOKIE" // Cookie: the program was started by a host, not by hand
	EnvSocketDir  = "BCX_SOCKET_DIR"   // directory, mode 0700, in which the plugin makes its socket
	EnvClientCert = "BCX_CLIENT_CERT"  // the host's certificate: DER in base64 on one line
)

// Cookie is the value of BCX_MAGIC_COOKIE. It tells a start by a host from one by hand; it protects nothing.
const Cookie = "better-compute-driver-plugin"

// SocketName is the socket's name in BCX_SOCKET_DIR.
const SocketName = "plugin.sock"

// StreamCapability is the prefix of the capability that advertises an operation with a byte stream: "<prefix><kind>.<operation>".
const StreamCapability = "bcx.stream:"

// Limits of the wire. A plugin reads more than a host sends and the other way round, so that the one that breaks a limit
// is told by the other's check, not by a broken connection.
const (
	maxHandshake = 8 << 10                 // bytes of the handshake line
	maxPayload   = 4 << 20                 // bytes of a configuration, of arguments, and of a result
	maxAnswer    = maxPayload + (64 << 10) // bytes of any message a host reads
	maxRequest   = 16 << 20                // bytes of any message a plugin reads
	maxHeaders   = 64 << 10                // bytes of the headers and trailers of an answer
	maxFrame     = 32 << 10                // bytes of one data frame as this package writes it
	maxDrivers   = 64                      // of one plugin
	maxText      = 4 << 10                 // bytes of a message for people
	maxSecrets   = 64                      // that go with one call
	maxIssues    = 64                      // of one Validate
	maxProgress  = 1 << 20                 // messages of one call
	maxStreams   = 1024                    // calls at once on one connection
)

// patience is how long a host waits beyond a deadline for the plugin to say timeout itself, and for the end of a call
// after its result.
const patience = time.Second

var (
	// ErrNotHosted says that a plugin was started by hand: its environment lacks the cookie.
	ErrNotHosted = errors.New("this is a driver plugin: the appliance starts it, it does nothing by itself")
	// ErrProtocol says that a plugin speaks another version of bcx. Starting it again does not help.
	ErrProtocol = errors.New("the plugin speaks another version of the bcx protocol")
	// ErrHandshake says that the first line of a plugin's output is not a handshake.
	ErrHandshake = errors.New("the plugin did not introduce itself")
)
