// request.js: what goes to the daemon and comes from it: tensors, one sequence of a batch, its mask;
// files that people bring, and code that they take. Addresses are relative to the page: a path prefix
// changes nothing.

import { count } from './data.js';
import { base64 } from './save.js';

const ROOT = new URL('.', document.baseURI);
const KEY = 'attnd-api-key';

export class Refused extends Error {
    constructor(status, problem) {
        super(problem.detail ?? problem.error ?? `the server answered ${status}`);
        Object.assign(this, { status, problem });
    }
}

const keyOf = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
export const setKey = (key) => sessionStorage.setItem(KEY, key);
export const hasKey = () => Boolean(keyOf());
export const address = (path) => new URL(path, ROOT).href;

async function ask(path, options = {}) {
    const headers = { ...options.headers }, key = keyOf();
    if (key) headers.Authorization = `Bearer ${key}`;
    let reply;
    try {
        reply = await fetch(new URL(path, ROOT), { ...options, headers });
    } catch (e) {
        if (e.name === 'AbortError') throw e;
        throw new Error('The server cannot be reached. Is attnd still running?');
    }
    if (reply.ok) return reply;
    const text = await reply.text();
    let problem = {};
    try { problem = JSON.parse(text); } catch { /* the status says enough */ }
    throw new Refused(reply.status, problem);
}

export const getJSON = async (path) => (await ask(path)).json();

/* --- tensors ----------------------------------------------------------------------------------- */

const DTYPES = { // by the names of safetensors: ours, an array of them, and how one becomes a number
    F64: ['float64', Float64Array],
    F32: ['float32', Float32Array],
    F16: ['float16', Uint16Array, half],
    BF16: ['bfloat16', Uint16Array, (v) => new Float32Array(new Uint32Array([v << 16]).buffer)[0]],
    I64: ['int64', BigInt64Array, Number],
    I32: ['int32', Int32Array],
    U8: ['uint8', Uint8Array],
    BOOL: ['bool', Uint8Array],
};

function half(u) {
    const e = (u >> 10) & 31, m = u & 1023, s = u & 0x8000 ? -1 : 1;
    return s * (e === 31 ? (m ? NaN : Infinity) : e ? 2 ** (e - 15) * (1 + m / 1024) : 2 ** -24 * m);
}

/** The tensors and options of a safetensors file. */
export function readSafetensors(buffer) {
    const size = Number(new DataView(buffer).getBigUint64(0, true)), start = 8 + size, tensors = {};
    if (!(size > 1 && start <= buffer.byteLength)) {
        throw new Error('this is not a safetensors file: its header does not fit');
    }
    const text = new TextDecoder().decode(new Uint8Array(buffer, 8, size));
    const { __metadata__: metadata = {}, ...head } = JSON.parse(text);
    for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(head)) {
        if (!DTYPES[dtype]) throw new Error(`tensor ${name} is ${dtype}, which is not known here`);
        const data = new Uint8Array(buffer, start + from, to - from);
        tensors[name] = { shape, dtype: DTYPES[dtype][0], data };
    }
    return { tensors, metadata };
}

/** The maps of several layers as one. */
export function stacked(parts) {
    const [{ shape, values }] = parts, all = new Float32Array(parts.length * values.length);
    parts.forEach((part, k) => all.set(part.values, k * values.length));
    return { shape: [parts.length, ...shape], values: all };
}

/** Sends a request; the answer's tensors are {shape, dtype, data}. */
export async function post(path, body, signal) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/vnd.safetensors' };
    const reply = await ask(path, { method: 'POST', body, signal, headers });
    return readSafetensors(await reply.arrayBuffer()).tensors;
}

function fromBase64(text) {
    const characters = atob(text), bytes = new Uint8Array(characters.length);
    for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
    return bytes;
}

/** A tensor object's numbers as float32. `data` is base64 or bytes. */
export function numbers({ shape, dtype = 'float32', data }) {
    const [, Type, convert] = Object.values(DTYPES).find(([name]) => name === dtype) ?? [];
    if (!Type) throw new Error(`dtype ${dtype} is not known here`);
    let bytes = typeof data === 'string' ? fromBase64(data) : data;
    const n = shape.reduce((a, b) => a * b, 1), here = Math.floor(bytes.length / Type.BYTES_PER_ELEMENT);
    if (here < n) {
        throw new Error(`shape [${shape.join(', ')}] needs ${n} ${dtype} numbers, but ${here} are here`);
    }
    if (bytes.byteOffset % Type.BYTES_PER_ELEMENT) bytes = bytes.slice(); // typed arrays want to be aligned
    const values = new Type(bytes.buffer, bytes.byteOffset, n);
    return Type === Float32Array ? values : Float32Array.from(values, convert);
}

const depth = (v) => { let n = 0; while (Array.isArray(v)) { n++; v = v[0]; } return n; };
export const rankOf = (v) => (Array.isArray(v) ? depth(v) : v.shape.length);
const ragged = (v) => Array.isArray(v) && depth(v) === 3 && v.some((x) => x.length !== v[0].length);

/** Nested arrays or a tensor object as {shape, values}. */
export function tensor(v) {
    if (!Array.isArray(v)) return { shape: v.shape, values: numbers(v) };
    const shape = [];
    for (let x = v, n = depth(v); n > 0; n--, x = x[0] ?? []) shape.push(x.length);
    const number = (x) => (x === '-inf' ? -Infinity : Number(x));
    return { shape, values: Float32Array.from(v.flat(shape.length), number) };
}

/* --- one sequence ------------------------------------------------------------------------------ */

/** How many sequences a request has. */
export function batchOf(request) {
    const x = request.inputs_embeds ?? request.query;
    if (!x) throw new Error('this JSON has neither inputs_embeds nor query');
    return rankOf(x) === 2 ? 1 : x.shape?.[0] ?? x.length;
}

/** The last two dimensions cut: a ragged batch's masks are as wide as its longest sequence. */
function crop({ shape, values }, rows, cols) {
    const wide = shape.at(-1), tall = shape.at(-2) ?? 1, w = Math.min(wide, cols), h = Math.min(tall, rows);
    const lines = (values.length / (wide * tall)) * h, out = new Float32Array(lines * w);
    for (let k = 0; k < lines; k++) {
        const from = (Math.floor(k / h) * tall + (k % h)) * wide;
        out.set(values.subarray(from, from + w), k * w);
    }
    return { shape: [...shape.slice(0, -2), h, w], values: out };
}

/** What sequence b has of a field. */
function sequence(name, v, b) {
    const embedded = name === 'inputs_embeds' || name === 'encoder_hidden_states';
    if (embedded && ragged(v)) return tensor([v[b]]);
    const { shape, values } = tensor(v);
    if (embedded && shape.length === 2) return { shape: [1, ...shape], values };
    if (name === 'attention_bias' && shape.length < 4) return { shape, values };
    const n = values.length / Math.max(1, shape[0]), k = shape[0] === 1 ? 0 : b; // 1: everybody's
    return { shape: [1, ...shape.slice(1)], values: values.subarray(k * n, (k + 1) * n) };
}

const TENSORS = ['inputs_embeds', 'encoder_hidden_states', 'attention_mask', 'attention_bias', 'past_key',
    'past_value', 'position_ids', 'lengths', 'query', 'key', 'value'];
const OURS = ['tokens', 'return_attentions', 'return_outputs', 'return_intermediates', 'encoding_format',
    'layer', 'attentions']; // what the page itself says, or keeps

/**
 * One sequence of a request, rectangular, its tensors as {shape, values} in `tensors`, the rest in
 * `options`: the same numbers come back as in its batch, bit for bit, and only they travel.
 */
export function pick(request, b) {
    const tensors = {}, options = {};
    for (const [name, v] of Object.entries(request)) {
        if (v === null || v === undefined || OURS.includes(name)) continue;
        if (TENSORS.includes(name)) tensors[name] = sequence(name, v, b);
        else options[name] = name === 'causal_offset' && Array.isArray(v) ? v[b] : v;
    }
    const x = tensors.inputs_embeds ?? tensors.query;
    const queries = x.shape.at(-2), past = tensors.past_key?.shape.at(-2) ?? 0;
    const keys = past + (tensors.key ?? tensors.encoder_hidden_states ?? x).shape.at(-2);
    for (const name of ['attention_mask', 'attention_bias', 'position_ids']) {
        const wide = name === 'position_ids' ? queries : keys;
        if (tensors[name]) tensors[name] = crop(tensors[name], queries, wide);
    }
    const cross = Boolean(tensors.encoder_hidden_states || (tensors.key && queries !== keys));
    const { tokens } = request, labels = (Array.isArray(tokens?.[0]) ? tokens[b] : tokens) ?? [];
    const before = Array.from({ length: past }, (_, k) => `past ${k}`);
    const fits = (list, n) => (list.length === n ? list : null);
    return { tensors, options, queries, keys, past, cross, queryTokens: fits(labels, queries),
        keyTokens: fits([...before, ...labels], keys) };
}

/** The request's text; its tensors are encoded once for each sequence. */
export function bodyOf(one, extra) {
    one.encoded ??= Object.fromEntries(Object.entries(one.tensors).map(([name, { shape, values }]) => {
        const whole = ['attention_mask', 'position_ids', 'lengths'].includes(name);
        const data = base64(new Uint8Array((whole ? Int32Array : Float32Array).from(values).buffer));
        return [name, { shape, dtype: whole ? 'int32' : 'float32', data }];
    }));
    return JSON.stringify({ ...one.options, ...extra, ...one.encoded });
}

/** Who sees whom, as <attention-map> takes it; null when everybody sees everything. */
export function maskOf({ options, tensors, queries, keys, past, cross }, layer, heads) {
    const { attention_mask: mask, attention_bias: bias, lengths, query } = tensors;
    const shift = options.causal_offset ?? past;
    const rule = { left: -1, right: -1, ...(options.window ?? layer?.window), shift,
        offset: (options.is_causal ?? layer?.is_causal) ? shift : null };
    const plain = mask?.shape.length === 2 && mask.values; // over keys alone
    if (lengths || plain) {
        const real = lengths ? lengths.values[0] + (cross ? 0 : past) : keys;
        const seen = (_, j) => j < real && (!plain || plain[j % plain.length] !== 0);
        rule.keys = Uint8Array.from({ length: keys }, seen);
    }
    if (lengths && !cross && !query) [rule.length] = lengths.values;
    const hiding = [];
    if (mask && !plain) hiding.push([mask, 0]);
    if (bias?.values.includes(-Infinity)) hiding.push([bias, -Infinity]);
    if (hiding.length) rule.cells = cellsOf(hiding, heads, queries, keys);
    const open = rule.offset === null && rule.left < 0 && rule.right < 0;
    return open && !rule.keys && !rule.cells ? null : rule;
}

/** Queries x keys, of each head where they differ: 0 where one of the tensors has the value that hides. */
function cellsOf(hiding, heads, queries, keys) {
    const planes = hiding.some(([{ shape }]) => shape.at(-3) > 1) ? heads : 1;
    const cells = new Uint8Array(planes * queries * keys).fill(1);
    for (const [{ shape, values }, hides] of hiding) {
        const [h, q, k] = [1, 1, ...shape].slice(-3); // a dimension of 1 is everybody's
        for (let row = 0; row < planes * queries; row++) {
            const from = ((Math.floor(row / queries) % h) * q + ((row % queries) % q)) * k;
            for (let j = 0; j < keys; j++) if (values[from + (j % k)] === hides) cells[row * keys + j] = 0;
        }
    }
    return cells;
}

/** Numbers for any layer, the same every time: something to look at before one has data. */
export function generated(layer, tokens) {
    let seed = 12345;
    const next = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 31 - 1; };
    const make = (n, width) => {
        const values = Float32Array.from({ length: n * width }, () => 1.7 * next());
        return { shape: [1, n, width], dtype: 'float32', data: base64(new Uint8Array(values.buffer)) };
    };
    const request = { inputs_embeds: make(tokens, layer.d_model) };
    if (layer.cross) request.encoder_hidden_states = make(Math.ceil(tokens / 2), layer.d_kv);
    return request;
}

/* --- what people bring ------------------------------------------------------------------------ */

function readNPY(buffer) {
    const bytes = new Uint8Array(buffer), view = new DataView(buffer);
    if (bytes.length < 12 || bytes[0] !== 0x93 || bytes[1] !== 0x4e) throw new Error('this is not a .npy file');
    const start = bytes[6] > 1 ? 12 : 10;
    const end = start + (start === 12 ? view.getUint32(8, true) : view.getUint16(8, true));
    const head = new TextDecoder().decode(bytes.subarray(start, end));
    const kind = /'descr':\s*'([^']*)'/.exec(head)?.[1], fortran = /'fortran_order':\s*True/.test(head);
    const shape = /'shape':\s*\(([^)]*)\)/.exec(head)?.[1].split(',').filter((s) => s.trim()).map(Number);
    const dtype = { '<f4': 'float32', '<f8': 'float64', '<f2': 'float16', '<i4': 'int32', '<i8': 'int64',
        '|b1': 'bool', '|u1': 'uint8' }[kind];
    if (!dtype || fortran) {
        throw new Error(`this .npy file holds ${kind}${fortran ? ' in Fortran order' : ''}; ` +
            'float32, float64 or float16 in C order can be shown');
    }
    return { shape, dtype, data: bytes.slice(end) };
}

/** Maps as they are in an answer: of a batch its first sequence, of an encoder's layers all. */
function asMap({ shape, values }, { tokens } = {}) {
    const labels = Array.isArray(tokens?.[0]) ? tokens[0] : tokens, plane = shape.slice(-3);
    const n = plane.reduce((a, b) => a * b, 1), batch = shape.length > 3 ? shape.at(-4) : 1;
    const layers = shape.length > 4 ? shape[0] : 1;
    const first = (l) => values.subarray(l * batch * n, (l * batch + 1) * n);
    const map = layers > 1 ? stacked(count(layers).map((l) => ({ shape: plane, values: first(l) })))
        : { shape: plane, values: first(0) };
    if (labels?.length === shape.at(-2)) map.queryTokens = labels;
    return { map };
}

export function readJSON(text) {
    let v = null;
    try { v = JSON.parse(text) ?? {}; } catch (e) { throw new Error(`this is not JSON: ${e.message}`); }
    if (v.inputs_embeds || v.query) return { request: v };
    if (v.shape && v.values) return { map: v };
    if (v.attentions) return asMap(tensor(v.attentions), v);
    throw new Error('this JSON has neither inputs_embeds nor query, and is no answer with attentions either');
}

/** What a file holds: {request} to be sent, or {map} to be shown as it is. */
export async function readFile(file, layer) {
    const ending = file.name.split('.').at(-1).toLowerCase();
    if (ending === 'json') return readJSON(await file.text());
    const buffer = await file.arrayBuffer();
    if (ending === 'npy') {
        const t = readNPY(buffer), { shape } = t;
        const inputs = (shape.length === 2 || shape.length === 3) && shape.at(-1) === layer?.d_model;
        return inputs ? { request: { inputs_embeds: t } } : asMap(tensor(t));
    }
    if (ending === 'safetensors') {
        const { tensors, metadata } = readSafetensors(buffer), options = {}, names = Object.keys(tensors);
        for (const [name, text] of Object.entries(metadata)) {
            try { options[name] = JSON.parse(text); } catch { /* a note, no option */ }
        }
        if (tensors.attentions) return asMap(tensor(tensors.attentions), options);
        if (tensors.inputs_embeds || tensors.query) return { request: { ...options, ...tensors } };
        throw new Error(`the file holds ${names.slice(0, 4).join(', ')}${names.length > 4 ? ', …' : ''}; ` +
            'inputs_embeds, query with key and value, or attentions can be shown. ' +
            'Weights are loaded by attnd itself: attnd --model NAME=FILE');
    }
    throw new Error(`${file.name}: drop a request or an answer as .json, or tensors as .npy or .safetensors`);
}

/* --- what people take -------------------------------------------------------------------------- */

/** What is on screen as a command or a program. w: {root, route, example, layer, head, index, key}. */
export function snippets({ root, route, example, layer, head, index, key }) {
    const url = root + route, source = example && root + example;
    const change = { ...(layer === null ? {} : { layer }), return_outputs: false,
        return_attentions: typeof head === 'number' ? { heads: [head] } : { reduce_heads: head } };
    const json = JSON.stringify(change), python = json.replace('false', 'False');
    const pythonKey = key ? ', "Authorization": "Bearer " + os.environ["ATTND_API_KEY"]' : '';
    const nodeKey = key ? ", Authorization: 'Bearer ' + process.env.ATTND_API_KEY" : '';
    const curl = `curl -s${key ? ' -H "Authorization: Bearer $ATTND_API_KEY"' : ''}`;
    const merge = `python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin) | ${python}))'`;
    return {
        curl: `${source ? `${curl} '${source}' |\n  ${merge}`
            : `# request.json: the button below saves it\n${merge} < request.json`} |
  ${curl} '${url}' --json @-`,
        Python: `import json${key ? ', os' : ''}, urllib.request

def call(url, body=None):
    headers = {"Content-Type": "application/json"${pythonKey}}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    return json.load(urllib.request.urlopen(request))

body = ${source ? `call("${source}")` : 'json.load(open("request.json"))'}
body.update(${python})
answer = call("${url}", body)
weights = answer["attentions"]${index}   # [query][key]
print(weights[0])`,
        JavaScript: `const headers = { 'Content-Type': 'application/json'${nodeKey} };
const body = ${source ? `await (await fetch('${source}', { headers })).json()`
        : "JSON.parse((await import('node:fs')).readFileSync('request.json', 'utf8'))"};
Object.assign(body, ${json});
const answer = await (await fetch('${url}', { method: 'POST', headers, body: JSON.stringify(body) })).json();
const weights = answer.attentions${index};   // [query][key]
console.log(JSON.stringify(weights[0]));`,
    };
}
