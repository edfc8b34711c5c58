// Bundles the plugin into one file that can be run as it is: the host executes the very file it hashed, from an open
// descriptor, so nothing may lie beside it. --preserve-symlinks-main makes Node take /proc/self/fd/3 for the script itself.
// The one argument is where the file goes; dist/cooling.js unless told.
import { build } from 'esbuild';
import { chmodSync } from 'node:fs';

const outfile = process.argv[2] ?? 'dist/cooling.js';
await build({
  entryPoints: ['plugin.js'],
  outfile,
  bundle: true,
  platform: 'node',
  target: 'node18',
  format: 'cjs',
  minifySyntax: true,
  loader: { '.proto': 'text' },
  banner: { js: '#!/usr/bin/env -S node --preserve-symlinks-main' },
  logLevel: 'warning',
});
chmodSync(outfile, 0o755);
