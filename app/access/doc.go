// Package access says who someone is and what they may do: the first administrator by a one-time setup code, logins,
// browser sessions, API tokens, roles and permissions.
//
// Passwords are argon2id hashes. Session and token values are kept as SHA-256 digests: they carry 256 random bits, so a
// slow hash adds nothing. Every refusal of a login takes as long and says the same, whether the user exists or not.
package access
