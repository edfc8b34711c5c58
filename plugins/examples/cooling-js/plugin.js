// The cooling unit of Acme once more, in JavaScript: the same driver as the Go example beside it.
'use strict';

const { Duplex } = require('node:stream');
const { setTimeout: sleep } = require('node:timers/promises');
const { serve, log, DriverError } = require('./bcx.js');

const configSchema = {
  type: 'object',
  required: ['address'],
  additionalProperties: false,
  properties: {
    address: { type: 'string', minLength: 1, description: 'host name or address of the unit' },
    credentials: { type: 'string', 'x-bc': { kind: 'secret' }, description: "reference to the unit's password" },
    fans: { type: 'integer', minimum: 1, maximum: 12, default: 4 },
  },
};

// check finds what is wrong with a configuration. A driver with a larger schema takes a JSON Schema validator such as ajv.
function check(config) {
  const issues = [];
  for (const name of Object.keys(config)) {
    if (!(name in configSchema.properties)) issues.push({ pointer: `/${name}`, message: 'is not known to this driver' });
  }
  if (typeof config.address !== 'string' || config.address === '') issues.push({ pointer: '/address', message: 'must be a host name or an address' });
  if ('credentials' in config && typeof config.credentials !== 'string') issues.push({ pointer: '/credentials', message: 'must be a reference to a secret' });
  const { fans = 4 } = config;
  if (!Number.isInteger(fans) || fans < 1 || fans > 12) issues.push({ pointer: '/fans', message: 'must be a whole number from 1 to 12' });
  return issues;
}

const units = new Map();

// unitAt is the state of a unit, kept while the plugin runs.
function unitAt({ address }) {
  if (!units.has(address)) units.set(address, { curve: [20, 40, 80], power: 'on' });
  return units.get(address);
}

function login(config, ctx) {
  if (ctx.secret(config.credentials) !== 'cool') {
    throw new DriverError('auth-failed', `the unit at ${config.address} refuses the password`);
  }
}

const cooling = (config, ctx) => ({
  getFanCurve: () => unitAt(config).curve,

  setFanCurve(curve) {
    if (!Array.isArray(curve)) throw new DriverError('invalid-args', 'the curve must be a list of percentages');
    curve.forEach((percent, i) => {
      if (!(percent >= 0 && percent <= 100)) {
        throw new DriverError('fan-curve-invalid', `point ${i + 1} of the curve is ${percent} percent; it must be 0 to 100`);
      }
      ctx.emit({ phase: 'points', message: `${percent} percent`, done: i + 1, total: curve.length });
    });
    unitAt(config).curve = curve;
    log('INFO', 'fan curve set', { driver: 'acme-cooling', points: curve.length, attempt: ctx.idempotencyKey, traceparent: ctx.traceparent });
    return { points: curve.length };
  },

  getTemperature(sensor = 0) {
    if (sensor === 9) throw new DriverError('busy', 'sensor 9 is being calibrated; ask again in a minute', { retryable: true });
    if (![0, 1, 2, 3].includes(sensor)) throw new DriverError('invalid-args', `there is no sensor ${JSON.stringify(sensor)}; the unit has 0 to 3`);
    return { celsius: 21.5 + sensor };
  },

  getSerial() {
    login(config, ctx);
    return { serial: `AC-${config.address}` };
  },

  async selfTest({ seconds = 10 } = {}) {
    const steps = seconds * 10;
    for (let i = 0; i < steps; i++) {
      ctx.emit({ phase: 'self-test', message: `${config.fans} fans`, done: i + 1, total: steps });
      await sleep(100, undefined, { signal: ctx.signal });
    }
  },
});

const power = (config) => ({
  getPower: () => ({ power: unitAt(config).power }),

  setPower(action) {
    if (!['on', 'off', 'cycle'].includes(action)) {
      throw new DriverError('invalid-args', `a cooling unit knows on, off and cycle, not ${JSON.stringify(action)}`);
    }
    unitAt(config).power = action === 'off' ? 'off' : 'on';
  },
});

// The console is a line that echoes.
const console_ = () => ({
  open() {
    const line = new Duplex({
      read() { this.more?.(); },
      write(data, _, done) { if (this.push(data)) done(); else this.more = () => { this.more = undefined; done(); }; },
    });
    return line;
  },
});

serve({
  pluginVersion: '1.0.0',
  health: async () => process.env.ACME_COOLING_SICK,
  drivers: [
    {
      id: 'acme-cooling',
      version: '1.0.0',
      runsOn: 'site',
      configSchema,
      kinds: { 'acme-cooling': cooling, power, console: console_ },
      streams: ['console.open'],
      retrySafe: ['acme-cooling.getFanCurve', 'acme-cooling.getTemperature', 'power.getPower'],
      check,
      validate: (config, ctx) => { if (config.credentials) login(config, ctx); },
    },
  ],
});
