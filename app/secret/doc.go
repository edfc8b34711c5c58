// Package secret seals values into the store and resolves references to them.
//
// What is kept under a name is either one text or named texts, such as the username and password of a BMC. It is sealed with AES-256-GCM
// under a key that lives in a file outside the database; the row's name is bound in as additional data, so that a sealed
// value moved to another row does not open. References are secret://root/NAME, env://BCD_SECRET_NAME and, read from a Vault or
// OpenBao server, vault://MOUNT/PATH[#FIELD].
package secret
