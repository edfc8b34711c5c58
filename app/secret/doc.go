// Package secret seals values into the store and resolves references to them.
//
// A secret is a string or an object of strings (BMC credentials are {username, password}). It is sealed with AES-256-GCM
// under a key that lives in a file outside the database; the row's name is bound in as additional data, so that a sealed
// value moved to another row does not open. References are secret://root/NAME, env://BCD_SECRET_NAME and, read from a Vault or
// OpenBao server, vault://MOUNT/PATH[#FIELD].
package secret
