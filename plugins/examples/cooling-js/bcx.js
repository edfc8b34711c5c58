// The plugin side of bcx, version 1, in JavaScript: handshake, certificates, the five calls, and the end. It knows nothing
// of cooling units; take it for a plugin of your own. PROTOCOL.md of plugins/bcx says why each step is there.
'use strict';

const path = require('node:path');
const { Duplex } = require('node:stream');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');
const proto = require('../../../proto/bettercompute/driver/v1/driver.proto');
const { makeIdentity, pem, readCertificate } = require('./identity.js');

const COOKIE = 'better-compute-driver-plugin';
const GRACE_MS = 5000;
const MAX_REQUEST = 16 << 20;

// DriverError is a failure with a code of the driver's own: lower-case kebab-case.
class DriverError extends Error {
  constructor(code, message, { retryable = false } = {}) {
    super(message);
    this.code = /^[a-z][a-z0-9]*(-[a-z0-9]+)*$/.test(code) && code.length <= 64 ? code : 'driver-error';
    this.retryable = retryable;
  }
}

// log writes one JSON line to stderr, from where the host takes it into its own log.
function log(level, msg, attributes = {}) {
  process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, msg, ...attributes })}\n`);
}

// serve introduces the plugin to its host and serves until the host asks it to stop.
//   drivers: [{id, version, runsOn, configSchema, kinds: {kind: (config, ctx) => ({operation(...args)})}, streams, capabilities,
//             retrySafe: ['kind.operation'], check(config): [{pointer, message}], validate(config, ctx)}]
//   health: async () => undefined, or a sentence why the plugin cannot work
// A ctx is {signal, emit(progress), secret(name), idempotencyKey, traceparent}.
function serve({ pluginVersion = '', drivers, health }) {
  if (process.env.BCX_MAGIC_COOKIE !== COOKIE) {
    process.stderr.write('this is a driver plugin: the appliance starts it, it does nothing by itself\n');
    process.exit(1);
  }
  const host = readCertificate(process.env.BCX_CLIENT_CERT);
  const identity = makeIdentity();
  const address = path.join(process.env.BCX_SOCKET_DIR, 'plugin.sock');
  const server = new grpc.Server({ 'grpc.max_receive_message_length': MAX_REQUEST, 'grpc.max_send_message_length': MAX_REQUEST });
  const plugin = new Plugin(pluginVersion, drivers, health, host);
  const { root } = protobuf.parse(proto, { keepCase: true });
  const definition = protoLoader.fromJSON(root.toJSON(), { keepCase: true, longs: Number, defaults: true, oneofs: true });
  const { DriverPlugin } = grpc.loadPackageDefinition(definition).bettercompute.driver.v1;
  server.addService(DriverPlugin.service, plugin.handlers());
  const credentials = grpc.ServerCredentials.createSsl(Buffer.from(pem(host)), [{ private_key: Buffer.from(identity.key), cert_chain: Buffer.from(identity.cert) }], true);
  stopWhenAsked(server);
  server.bindAsync(`unix:${address}`, credentials, (error) => {
    if (error) {
      log('ERROR', 'listening failed', { error: error.message });
      process.exit(1);
    }
    process.stdout.write(`bcx|1|unix|${address}|grpc|${identity.der.toString('base64').replace(/=+$/, '')}\n`);
  });
}

// stopWhenAsked ends the plugin on SIGTERM and at the end of stdin; SIGINT is meant for the host.
function stopWhenAsked(server) {
  let stopping = false;
  const stop = () => {
    if (stopping) return;
    stopping = true;
    setTimeout(() => process.exit(0), GRACE_MS).unref();
    server.tryShutdown(() => process.exit(0));
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', () => {});
  process.stdin.on('end', stop).on('error', stop).resume();
}

class Plugin {
  constructor(version, drivers, health, host) {
    this.drivers = new Map(drivers.map((d) => [d.id, d]));
    this.health = health;
    this.host = host;
    this.about = {
      plugin_version: version,
      protocol_version: 1,
      drivers: drivers.map((d) => ({
        id: d.id,
        version: d.version,
        kinds: Object.keys(d.kinds),
        runs_on: d.runsOn,
        config_schema_json: JSON.stringify(d.configSchema),
        capabilities: [...(d.capabilities ?? []), ...(d.streams ?? []).map((s) => `bcx.stream:${s}`)],
        retry_safe_operations: d.retrySafe ?? [],
      })),
    };
  }

  handlers() {
    // TLS let in who holds the host's key; only who shows the host's very certificate may call.
    const known = (call) => call.getAuthContext().sslPeerCertificate?.raw?.equals(this.host);
    const stranger = { code: grpc.status.UNAUTHENTICATED, details: 'another certificate than the one announced' };
    const unary = (f) => (call, done) => {
      if (!known(call)) return done(stranger);
      return f(call.request).then((answer) => done(null, answer), (error) => done({ code: grpc.status.INTERNAL, details: error.message }));
    };
    const streaming = (f) => (call) => (known(call) ? f(call) : call.emit('error', stranger));
    return {
      Describe: unary(async () => this.about),
      Validate: unary((request) => this.validate(request)),
      Health: unary(() => this.healthy()),
      Invoke: streaming((call) => this.invoke(call)),
      Stream: streaming((call) => this.stream(call)),
    };
  }

  async healthy() {
    let why;
    try {
      why = await this.health?.();
    } catch (error) {
      why = error.message;
    }
    return why ? { status: 'NOT_SERVING', message: why } : { status: 'SERVING', message: '' };
  }

  find(id) {
    const driver = this.drivers.get(id);
    if (!driver) throw new DriverError('driver-not-found', `the plugin serves no driver ${JSON.stringify(id)}`);
    return driver;
  }

  async validate(request) {
    try {
      const driver = this.find(request.driver_id);
      const config = parse(request.config_json || '{}', 'invalid-config', 'the configuration');
      const issues = driver.check(config).map((issue) => ({ code: '', ...issue }));
      if (issues.length > 0) return { valid: false, issues };
      await withDeadline(request.timeout_ms, new AbortController(), (signal) => driver.validate?.(withDefaults(driver, config), context(request, signal)));
      return { valid: true, issues: [] };
    } catch (error) {
      const { code, message } = wireError(error, true);
      return { valid: false, issues: [{ pointer: '', message, code }] };
    }
  }

  // run calls an operation with its arguments, which are positional in an array; any other value is the single one.
  run(request, signal, emit) {
    const driver = this.find(request.driver_id);
    const kind = Object.hasOwn(driver.kinds, request.kind) ? driver.kinds[request.kind] : undefined;
    const config = parse(request.config_json || '{}', 'invalid-config', 'the configuration');
    const issues = driver.check(config);
    if (issues.length > 0) throw new DriverError('invalid-config', `${issues[0].pointer}: ${issues[0].message}`);
    const operations = kind?.(withDefaults(driver, config), context(request, signal, emit)) ?? {};
    if (!Object.hasOwn(operations, request.operation)) {
      throw new DriverError('unsupported-operation', `the driver has no operation ${request.kind}.${request.operation}`);
    }
    const args = parse(request.args_json || '[]', 'invalid-args', 'the argument list');
    return operations[request.operation](...(Array.isArray(args) ? args : [args]));
  }

  retrySafe(request) {
    const { kind, operation } = request;
    return this.drivers.get(request.driver_id)?.retrySafe?.includes(`${kind}.${operation}`) ?? false;
  }

  async invoke(call) {
    const abort = new AbortController();
    call.on('cancelled', () => abort.abort());
    const { request } = call;
    let over = false;
    const emit = (p) => {
      if (!over && !abort.signal.aborted) call.write({ progress: { phase: p.phase, message: p.message ?? '', done: p.done ?? 0, total: p.total ?? 0 } });
    };
    let last;
    try {
      const result = await withDeadline(request.timeout_ms, abort, async (signal) => this.run(request, signal, emit));
      if (result instanceof Duplex) {
        result.destroy();
        throw new DriverError('unsupported-operation', `${request.kind}.${request.operation} gives a byte stream, not a result`);
      }
      last = { result_json: JSON.stringify(result ?? null) };
    } catch (error) {
      last = { error: wireError(error, this.retrySafe(request)) };
    }
    over = true;
    call.write(last);
    call.end();
  }

  // stream carries bytes both ways: an operation with a byte stream gives a Duplex.
  stream(call) {
    const abort = new AbortController();
    let bytes;
    const close = (error) => {
      if (bytes !== undefined && !bytes.destroyed) bytes.destroy();
      call.write({ close: error ? { error } : {} });
      call.end();
    };
    call.on('cancelled', () => { abort.abort(); bytes?.destroy(); });
    call.on('error', () => bytes?.destroy());
    call.on('end', () => { bytes?.destroy(); call.end(); });
    call.on('data', async (frame) => {
      if (frame.frame === 'open' && bytes === undefined) {
        call.pause();
        const request = frame.open;
        try {
          const opened = await withDeadline(request.timeout_ms, abort, async (signal) => this.run(request, signal, () => {}));
          if (!(opened instanceof Duplex)) {
            throw new DriverError('unsupported-operation', `${request.kind}.${request.operation} gives no byte stream`);
          }
          bytes = opened;
        } catch (error) {
          close(wireError(error, this.retrySafe(request)));
          return;
        }
        call.write({ data: Buffer.alloc(0) });
        bytes.on('data', (data) => { if (!call.write({ data })) { bytes.pause(); call.once('drain', () => bytes.resume()); } });
        bytes.on('end', () => close());
        bytes.on('error', (error) => close(wireError(error, false)));
        call.resume();
      } else if (frame.frame === 'data' && bytes !== undefined) {
        if (!bytes.write(frame.data)) {
          call.pause();
          bytes.once('drain', () => call.resume());
        }
      } else {
        bytes?.destroy();
        call.end();
      }
    });
  }
}

// parse reads JSON of the host's; what is none is the caller's mistake.
function parse(text, code, what) {
  try {
    return JSON.parse(text);
  } catch {
    throw new DriverError(code, `${what} is not JSON`);
  }
}

// context is what an operation is told of its call.
function context(request, signal, emit = () => {}) {
  const secrets = new Map(request.secrets.map((s) => [s.name, s.value]));
  return {
    signal,
    emit,
    idempotencyKey: request.idempotency_key,
    traceparent: request.traceparent,
    secret(name) {
      if (!secrets.has(name)) throw new DriverError('credentials-unavailable', `the secret ${JSON.stringify(name)} was not given to the driver`);
      return secrets.get(name);
    },
  };
}

// withDeadline runs f and fails with timeout when ms pass first, even when f does not listen to its signal. 0: no limit.
async function withDeadline(ms, abort, f) {
  const running = f(abort.signal);
  if (!ms) return running;
  let timer;
  const late = new Promise((_, fail) => {
    timer = setTimeout(() => {
      fail(new DriverError('timeout', 'the operation did not end before its deadline', { retryable: true }));
      abort.abort();
    }, Math.min(ms, 2 ** 31 - 1));
  });
  try {
    return await Promise.race([running, late]);
  } finally {
    clearTimeout(timer);
  }
}

// withDefaults fills the defaults of the schema in: the host sends a configuration as the operator wrote it.
function withDefaults(driver, config) {
  const filled = { ...config };
  for (const [name, property] of Object.entries(driver.configSchema.properties ?? {})) {
    if (!(name in filled) && 'default' in property) filled[name] = property.default;
  }
  return filled;
}

// wireError makes any error fit for the wire. Only an operation that is retry-safe may say that it can be repeated.
function wireError(error, retrySafe) {
  const known = error instanceof DriverError;
  return {
    code: known ? error.code : 'driver-error',
    message: String(error?.message ?? error).slice(0, 4096),
    retryable: known && error.retryable && retrySafe,
  };
}

module.exports = { serve, log, DriverError };
