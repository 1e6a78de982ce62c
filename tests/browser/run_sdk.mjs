// Runs sdk_cases.js in Node: node --experimental-websocket run_sdk.mjs SDK URL
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [sdkPath, url] = process.argv.slice(2);
const sdk = await import(pathToFileURL(sdkPath));
const stores = new Map();
const storeOf = (name) => stores.get(name) ?? stores.set(name, new sdk.MemoryStore()).get(name);
const cases = (0, eval)(readFileSync(new URL('./sdk_cases.js', import.meta.url), 'utf8'));
console.log(JSON.stringify(await cases({ sdk, url, storeOf })));
process.exit(0);
