package secret

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
)

// keyHeader is the first line of a key file; each further line is one base64 key, the current one first.
const keyHeader = "bcd secret key v1"

const keyBytes = 32

// sealed form: version, key id (4 bytes, big endian), nonce (12 bytes), ciphertext with tag.
const (
	sealVersion = 1
	sealPrefix  = 1 + 4
)

// ring holds the keys of one file, the current one first.
type ring struct {
	keys [][]byte
}

// openKeyFile reads the key file, or makes it with a fresh key when it is not there.
func openKeyFile(path string) (*ring, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		r := &ring{keys: [][]byte{freshKey()}}
		return r, r.save(path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the secret key file: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading the mode of the secret key file: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, app.Errorf(app.InvalidConfig, "secret-key-mode",
			"the secret key file %s has mode %04o, others than its owner may reach it", path, info.Mode().Perm()).
			Do("run: chmod 600 %s", path)
	}
	return parseKeys(bufio.NewScanner(f), path)
}

func parseKeys(lines *bufio.Scanner, path string) (*ring, error) {
	wrong := app.Errorf(app.InvalidConfig, "secret-key-file", "%s is not a bcd secret key file", path).
		Do("restore it from a backup: without it no stored secret can be opened")
	if !lines.Scan() || lines.Text() != keyHeader {
		return nil, wrong
	}
	r := &ring{}
	for lines.Scan() {
		k, err := base64.StdEncoding.DecodeString(strings.TrimSpace(lines.Text()))
		if err != nil || len(k) != keyBytes {
			return nil, wrong
		}
		r.keys = append(r.keys, k)
	}
	if lines.Err() != nil || len(r.keys) == 0 {
		return nil, wrong
	}
	return r, nil
}

// save replaces the file whole, mode 0600, durable when it returns.
func (r *ring) save(path string) error {
	var b strings.Builder
	b.WriteString(keyHeader + "\n")
	for _, k := range r.keys {
		b.WriteString(base64.StdEncoding.EncodeToString(k) + "\n")
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".secret-key-*") // 0600
	if err != nil {
		return fmt.Errorf("creating the secret key file: %w", err)
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	_, err = tmp.WriteString(b.String())
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return fmt.Errorf("writing the secret key file: %w", err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return fmt.Errorf("placing the secret key file: %w", err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("opening the secret key's directory: %w", err)
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func freshKey() []byte {
	k := make([]byte, keyBytes)
	_, _ = rand.Read(k) // never fails since Go 1.24
	return k
}

func keyID(key []byte) uint32 {
	// The id is an encryption under the key of a fixed block, so it says nothing about the key.
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // keys have 32 bytes: parseKeys and freshKey see to it
	}
	var id [aes.BlockSize]byte
	block.Encrypt(id[:], []byte("bcd-key-id-block"))
	return binary.BigEndian.Uint32(id[:])
}

func aead(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // as in keyID
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the block size GCM needs
	}
	return gcm
}

func aad(name string) []byte { return []byte("bcd-secret\x00" + name) }

// seal encrypts plain for the row name under the current key.
func (r *ring) seal(name string, plain []byte) []byte {
	gcm := aead(r.keys[0])
	out := binary.BigEndian.AppendUint32([]byte{sealVersion}, keyID(r.keys[0]))
	nonce := make([]byte, gcm.NonceSize())
	_, _ = rand.Read(nonce)
	return gcm.Seal(append(out, nonce...), nonce, plain, aad(name))
}

// open decrypts what seal made for the same name. The error tells nothing of the value.
func (r *ring) open(name string, sealed []byte) ([]byte, error) {
	const nonceSize = 12
	if len(sealed) > sealPrefix+nonceSize && sealed[0] == sealVersion {
		id := binary.BigEndian.Uint32(sealed[1:sealPrefix])
		nonce, box := sealed[sealPrefix:sealPrefix+nonceSize], sealed[sealPrefix+nonceSize:]
		for _, k := range r.keys {
			if keyID(k) != id {
				continue
			}
			if plain, err := aead(k).Open(nil, nonce, box, aad(name)); err == nil {
				return plain, nil
			}
		}
	}
	return nil, app.Errorf(app.InvalidConfig, "secret-unavailable", "the secret %q cannot be opened with this appliance's key", name).
		Do("restore the key file that belongs to this database, or store the secret again")
}
