// request.js: what goes to the daemon and comes from it: tensors, one sequence of a batch, its mask.
// Addresses are relative to the page: a path prefix changes nothing.

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

const TYPE_NAMES = {
    F32: 'float32', F16: 'float16', BF16: 'bfloat16', F64: 'float64', I32: 'int32', I64: 'int64',
        BOOL: 'bool', U8: 'uint8',
};

/** The tensors and options of a safetensors file. */
export function readSafetensors(buffer) {
    const size = Number(new DataView(buffer).getBigUint64(0, true)), start = 8 + size, tensors = {};
    if (!(size > 1 && start <= buffer.byteLength)) {
        throw new Error('this is not a safetensors file: its header does not fit');
    }
    const { __metadata__: metadata = {},
        ...head } = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    for (const [name, { dtype, shape, data_offsets: [from, to] }] of Object.entries(head)) {
        if (!TYPE_NAMES[dtype]) throw new Error(`tensor ${name} is ${dtype}, which is not known here`);
        tensors[name] = { shape, dtype: TYPE_NAMES[dtype],
            data: new Uint8Array(buffer, start + from, to - from) };
    }
    return { tensors, metadata };
}

/** Sends a request; the answer's tensors are {shape, dtype, data}. */
export async function post(path, body, signal) {
    const headers = { 'Content-Type': 'application/json', Accept: 'application/vnd.safetensors' };
    const reply = await ask(path, { method: 'POST', body, signal, headers });
    return readSafetensors(await reply.arrayBuffer()).tensors;
}

const TENSORS = ['inputs_embeds', 'encoder_hidden_states', 'attention_mask', 'attention_bias', 'past_key',
    'past_value', 'position_ids', 'lengths', 'query', 'key', 'value'];

const half = (u) => {
    const e = (u >> 10) & 31, m = u & 1023, s = u & 0x8000 ? -1 : 1;
    return s * (e === 31 ? (m ? NaN : Infinity) : e ? 2 ** (e - 15) * (1 + m / 1024) : 2 ** -14 * (m / 1024));
};

function fromBase64(text) {
    const characters = atob(text), bytes = new Uint8Array(characters.length);
    for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
    return bytes;
}

const DTYPES = {
    float32: [Float32Array], float64: [Float64Array], float16: [Uint16Array, half],
    bfloat16: [Uint16Array, (v) => new Float32Array(new Uint32Array([v << 16]).buffer)[0]],
    int32: [Int32Array], int64: [BigInt64Array, Number], bool: [Uint8Array], uint8: [Uint8Array],
};

/** A tensor object's numbers as float32. `data` is base64 or bytes. */
export function numbers({ shape, dtype = 'float32', data }) {
    const [Type, convert] = DTYPES[dtype] ?? [];
    if (!Type) throw new Error(`dtype ${dtype} is not known here`);
    const bytes = typeof data === 'string' ? fromBase64(data) : data, n = shape.reduce((a, b) => a * b, 1);
    const here = Math.floor(bytes.length / Type.BYTES_PER_ELEMENT);
    if (here < n) {
        throw new Error(`shape [${shape.join(', ')}] needs ${n} ${dtype} numbers, but ${here} are here`);
    }
    const from = bytes.byteOffset % Type.BYTES_PER_ELEMENT ? bytes.slice()
        : bytes; // typed arrays want to be aligned
    const values = new Type(from.buffer, from.byteOffset, n);
    return Type === Float32Array ? values : Float32Array.from(values, convert);
}

const depth = (v) => { let n = 0; while (Array.isArray(v)) { n++; v = v[0]; } return n; };

/** Nested arrays or a tensor object as {shape, values}; values nested stay nested in `rows` when ragged. */
export function tensor(v) {
    if (v === undefined || v === null) return null;
    if (!Array.isArray(v)) return { shape: v.shape, values: numbers(v) };
    const shape = [];
    for (let x = v, n = depth(v); n > 0; n--) { shape.push(x.length); x = x[0] ?? []; }
    return { shape, values: Float32Array.from(v.flat(shape.length), (x) =>
        (x === '-inf' ? -Infinity : Number(x))) };
}

const ragged = (v) => Array.isArray(v) && depth(v) === 3 && v.some((x) => x.length !== v[0].length);
const rankOf = (v) => (Array.isArray(v) ? depth(v) : v.shape.length);

/** How many sequences a request has. */
export function batchOf(request) {
    const x = request.inputs_embeds ?? request.query;
    if (!x) throw new Error('this JSON has neither inputs_embeds nor query');
    const rank = rankOf(x);
    return request.query ? (Array.isArray(x) ? x.length : x.shape[0]) : rank === 2 ? 1 : Array.isArray(x)
        ? x.length : x.shape[0];
}

/** Item b of the first dimension, where there is one; a dimension of 1 is everybody's. */
function item(t, b) {
    const n = t.values.length / Math.max(1, t.shape[0]), k = t.shape[0] === 1 ? 0 : b;
    return { shape: [1, ...t.shape.slice(1)], values: t.values.subarray(k * n, (k + 1) * n) };
}

/** Cuts the last dimensions: a ragged batch's masks are as wide as its longest sequence. */
function crop(t, rows, cols) {
    const shape = t.shape.slice(), wide = shape.at(-1), tall = shape.length > 2 ? shape.at(-2) : 1,
        w = Math.min(wide, cols), hh = shape.length > 2 ? Math.min(tall, rows) : 1;
    if (w === wide && hh === tall) return t;
    const planes = t.values.length / (wide * tall), out = new Float32Array(planes * w * hh);
    for (let p = 0, k = 0; p < planes; p++) {
        for (let i = 0; i < hh; i++) {
            for (let j = 0; j < w; j++) out[k++] = t.values[(p * tall + i) * wide + j];
        }
    }
    shape[shape.length - 1] = w;
    if (shape.length > 2) shape[shape.length - 2] = hh;
    return { shape, values: out };
}

/**
 * One sequence of a request, rectangular, its tensors as {shape, values} in `tensors`, the rest in
 * `options`: the same numbers come back as in its batch, bit for bit, and only they travel.
 */
export function pick(request, b) {
    const tensors = {}, options = {};
    for (const [name, v] of Object.entries(request)) {
        if (v === null || v === undefined || ['tokens', 'return_attentions', 'return_outputs',
            'return_intermediates', 'encoding_format', 'layer', 'attentions'].includes(name)) continue;
        if (!TENSORS.includes(name)) {
            options[name] = name === 'causal_offset' && Array.isArray(v) ? v[b] : v;
            continue;
        }
        if (name === 'inputs_embeds' || name === 'encoder_hidden_states') {
            const single = rankOf(v) === 2, t = ragged(v) ? tensor([v[b]]) : tensor(v);
            tensors[name] = single ? { shape: [1, ...t.shape], values: t.values } : ragged(v) ? t
                : item(t, b);
        } else if (name === 'attention_bias' && rankOf(v) < 4) tensors[name] = tensor(v);
        else tensors[name] = item(tensor(v), b);
    }
    const x = tensors.inputs_embeds ?? tensors.query;
    const queries = x.shape.at(-2), past = tensors.past_key?.shape.at(-2) ?? 0;
    const keys = past + (tensors.key ?? tensors.encoder_hidden_states ?? x).shape.at(-2);
    for (const name of ['attention_mask',
        'attention_bias']) if (tensors[name]) tensors[name] = crop(tensors[name], queries, keys);
    if (tensors.position_ids) tensors.position_ids = crop(tensors.position_ids, queries, queries);
    const labels = request.tokens && (Array.isArray(request.tokens[0]) ? request.tokens[b] : request.tokens);
    const cross = Boolean(tensors.encoder_hidden_states || (tensors.key && queries !== keys));
    const fits = (n) => (labels?.length === n ? labels : null);
    return {
        tensors, options, queries, keys, past, cross, queryTokens: fits(queries),
        keyTokens: request.key_tokens ?? (cross && queries !== keys ? null : past && labels
            ? [...Array.from({ length: past }, (_, k) => `past ${k}`), ...labels] : fits(keys)),
    };
}

/** The request's text; made once for each sequence and layer. */
export function bodyOf(one, extra) {
    const out = { ...one.options };
    one.encoded ??= Object.fromEntries(Object.entries(one.tensors).map(([name, t]) =>
        [name, name === 'attention_mask' || name === 'position_ids' || name === 'lengths'
        ? { shape: t.shape, dtype: 'int32', data: base64(new Uint8Array(Int32Array.from(t.values).buffer)) }
        : { shape: t.shape, dtype: 'float32', data: base64(new Uint8Array(t.values.slice().buffer)) }]));
    return JSON.stringify({ ...out, ...extra, ...one.encoded });
}

/** Who sees whom, as <attention-map> takes it; null when everybody sees everything. */
export function maskOf(one, layer, heads) {
    const o = one.options, t = one.tensors, { queries, keys } = one;
    const causal = o.is_causal ?? layer?.is_causal ?? false, window = o.window ?? layer?.window
        ?? { left: -1, right: -1 };
    const shift = o.causal_offset ?? one.past, length = t.lengths ? t.lengths.values[0] : null;
    const rule = { offset: causal ? shift : null, left: window.left ?? -1, right: window.right ?? -1, shift,
        keys: null, length: queries };
    if (length !== null) {
        const real = length + (one.cross ? 0 : one.past);
        rule.keys = Uint8Array.from({ length: keys }, (_, j) => (j < real ? 1 : 0));
        if (!one.cross && !t.query) rule.length = length;
    }
    const m = t.attention_mask, bias = t.attention_bias;
    if (m && m.shape.length === 2) rule.keys = Uint8Array.from({ length: keys }, (_, j) =>
        ((rule.keys?.[j] ?? 1) && m.values[m.shape[1] === 1 ? 0 : j] ? 1 : 0));
    const full = (m && m.shape.length > 2) || (bias && bias.values.includes(-Infinity));
    if (!full) return rule.offset === null && rule.left < 0 && rule.right < 0 && !rule.keys ? null : rule;
    const out = new Uint8Array(heads * queries * keys);
    const at = (x, h, i, j) => { // right-aligned, a dimension of 1 is everybody's
        const s = [1, 1, 1, 1, ...x.shape].slice(-4), u = x === m && x.shape.length === 3
            ? [s[1], 1, s[2], s[3]] : s;
        return x.values[((u[1] === 1 ? 0 : h) * u[2] + (u[2] === 1 ? 0 : i)) * u[3] + (u[3] === 1 ? 0 : j)];
    };
    for (let h = 0, k = 0; h < heads; h++) {
        for (let i = 0; i < queries; i++) {
            for (let j = 0; j < keys; j++, k++) {
                const p = i + rule.shift, seen = (rule.offset === null || j <= i + rule.offset)
                    && (rule.left < 0 || j >= p - rule.left) && (rule.right < 0 || j <= p + rule.right)
                    && (!rule.keys || rule.keys[j]) && i < rule.length;
                out[k] = seen && (!m || m.shape.length === 2 || at(m, h, i, j))
                    && (!bias || at(bias, h, i, j) !== -Infinity) ? 1 : 0;
            }
        }
    }
    return out;
}

/** Numbers for any layer, the same every time: something to look at before one has data. */
export function generated(layer, tokens) {
    let seed = 12345;
    const next = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 31 - 1; };
    const make = (n, width) => ({ shape: [1, n, width], dtype: 'float32',
        data: base64(new Uint8Array(Float32Array.from({ length: n * width }, () => 1.7 * next()).buffer)) });
    return { inputs_embeds: make(tokens, layer.d_model),
        ...(layer.cross ? { encoder_hidden_states: make(Math.ceil(tokens / 2), layer.d_kv) } : {}) };
}
