// Package session is the agent's side of the trust between one boot of a machine and the appliance.
//
// It reads the boot data, pins the appliance's key on TLS, keeps the server's time by the monotonic clock, trades the boot
// token for a session, keeps that session in a 0600 file so that a restarted agent resumes, and verifies that a command is
// signed, meant for this session, whole and not past its expiry.
package session
