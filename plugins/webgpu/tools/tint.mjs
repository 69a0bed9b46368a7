// Validates texts of kernels by Tint, in Dawn, for a device with WebGPU's default limits.
//
//     node tint.mjs FOLDER-OF-NPM FOLDER-OF-TEXTS
//
// It needs no adapter: Dawn has one that computes nothing.  What it finds is one object
// for each wrong text, in JSON, and the last line says how many there were.
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [npm, texts] = process.argv.slice(2);
const dawn = createRequire(resolve(npm, 'package.json')).resolve('webgpu');
const { create, globals } = await import(pathToFileURL(dawn));
Object.assign(globalThis, globals);

// without a reference to it, Dawn is gone with the next collection of garbage
globalThis.gpu = create(['backend=null']);
const adapter = await gpu.requestAdapter();
const f16 = adapter.features.has('shader-f16') ? ['shader-f16'] : [];
const device = await adapter.requestDevice({ requiredFeatures: f16 });
const names = readdirSync(texts).filter((name) => name.endsWith('.wgsl'));
for (const name of names) {
  const code = readFileSync(join(texts, name), 'utf8');
  device.pushErrorScope('validation');
  const module = device.createShaderModule({ code });
  device.createComputePipeline({ layout: 'auto', compute: { module, entryPoint: 'main' } });
  const { messages } = await module.getCompilationInfo();
  const error = await device.popErrorScope();
  if (error) {
    const said = messages.map((each) => `${each.lineNum}: ${each.type}: ${each.message}`);
    console.log(JSON.stringify({ name, error: [...said, error.message].join('\n') }));
  }
}
console.log(names.length);
// Dawn's threads would keep the process
process.exit(0);
