// The plugin's certificate. Node can sign, but writes no certificates; this is the least that makes one: X.509, P-256,
// signed with its own key. Nobody checks names or dates, the host compares the bytes.
'use strict';

const crypto = require('node:crypto');

// der encodes one ASN.1 value.
function der(tag, ...parts) {
  const body = Buffer.concat(parts);
  const size = body.length.toString(16);
  const bytes = Buffer.from(size.padStart(size.length + (size.length % 2), '0'), 'hex');
  const length = body.length < 128 ? bytes : Buffer.concat([Buffer.from([0x80 | bytes.length]), bytes]);
  return Buffer.concat([Buffer.from([tag]), length, body]);
}

const SEQUENCE = 0x30;
const ecdsaWithSHA256 = der(SEQUENCE, Buffer.from('06082a8648ce3d040302', 'hex'));

// name is the distinguished name CN=text.
function name(text) {
  const commonName = Buffer.from('0603550403', 'hex');
  return der(SEQUENCE, der(0x31, der(SEQUENCE, commonName, der(0x0c, Buffer.from(text)))));
}

// makeIdentity gives {key, cert} as PEM and der, the certificate's bytes.
function makeIdentity() {
  const { privateKey, publicKey } = crypto.generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const serial = crypto.randomBytes(16);
  serial[0] = (serial[0] & 0x7f) | 0x40; // positive, and no leading zero
  const time = (text) => der(0x18, Buffer.from(text));
  const body = der(
    SEQUENCE,
    der(0xa0, der(0x02, Buffer.from([2]))), // version 3
    der(0x02, serial),
    ecdsaWithSHA256,
    name('bcx'),
    der(SEQUENCE, time('19700101000000Z'), time('20991231235959Z')),
    name('bcx'),
    publicKey.export({ type: 'spki', format: 'der' }),
  );
  const signature = crypto.sign('sha256', body, privateKey);
  const cert = der(SEQUENCE, body, ecdsaWithSHA256, der(0x03, Buffer.from([0]), signature));
  return { key: privateKey.export({ type: 'pkcs8', format: 'pem' }), cert: pem(cert), der: cert };
}

// pem wraps a certificate's bytes.
function pem(bytes) {
  return `-----BEGIN CERTIFICATE-----\n${bytes.toString('base64').match(/.{1,64}/g).join('\n')}\n-----END CERTIFICATE-----\n`;
}

// readCertificate gives the bytes of a certificate as it travels in the environment: base64 of the DER, padded or not, or
// PEM.
function readCertificate(text) {
  return new crypto.X509Certificate(text.startsWith('-----') ? text : Buffer.from(text, 'base64')).raw;
}

module.exports = { makeIdentity, pem, readCertificate };
