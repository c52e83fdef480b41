// request.js: requests as the viewer needs them: one sequence of a batch, its mask, files, snippets.

import { readSafetensors } from './api.js';

const TENSORS = ['inputs_embeds', 'encoder_hidden_states', 'attention_mask', 'attention_bias', 'past_key', 'past_value', 'position_ids', 'lengths', 'query', 'key', 'value'];

export function base64(bytes) {
    let text = '';
    for (let k = 0; k < bytes.length; k += 0x6000) text += String.fromCharCode(...bytes.subarray(k, k + 0x6000));
    return btoa(text);
}

const half = (u) => {
    const e = (u >> 10) & 31, m = u & 1023, s = u & 0x8000 ? -1 : 1;
    return s * (e === 31 ? (m ? NaN : Infinity) : e ? 2 ** (e - 15) * (1 + m / 1024) : 2 ** -14 * (m / 1024));
};

/** A tensor object's numbers as float32. `data` is base64 or bytes. */
export function numbers({ shape, dtype = 'float32', data }) {
    const bytes = typeof data === 'string' ? Uint8Array.from(atob(data), (c) => c.charCodeAt(0)) : data.slice();
    const n = shape.reduce((a, b) => a * b, 1), of = (Type) => new Type(bytes.buffer, 0, Math.min(n, Math.floor(bytes.length / Type.BYTES_PER_ELEMENT)));
    const read = {
        float32: () => of(Float32Array), float64: () => Float32Array.from(of(Float64Array)), float16: () => Float32Array.from(of(Uint16Array), half),
        bfloat16: () => { const out = new Uint32Array(of(Uint16Array)); for (let k = 0; k < out.length; k++) out[k] <<= 16; return new Float32Array(out.buffer); },
        int32: () => Float32Array.from(of(Int32Array)), int64: () => Float32Array.from(of(BigInt64Array), Number), bool: () => Float32Array.from(bytes), uint8: () => Float32Array.from(bytes),
    }[dtype];
    if (!read) throw new Error(`dtype ${dtype} is not known here`);
    const out = read();
    if (out.length !== n) throw new Error(`a tensor of shape [${shape.join(', ')}] needs ${n} ${dtype} numbers, but ${out.length} are here`);
    return out;
}

const depth = (v) => { let n = 0; while (Array.isArray(v)) { n++; v = v[0]; } return n; };

/** Nested arrays or a tensor object as {shape, values}; values nested stay nested in `rows` when ragged. */
function tensor(v) {
    if (v === undefined || v === null) return null;
    if (!Array.isArray(v)) return { shape: v.shape, values: numbers(v) };
    const shape = [];
    for (let x = v, n = depth(v); n > 0; n--) { shape.push(x.length); x = x[0] ?? []; }
    return { shape, values: Float32Array.from(v.flat(shape.length), (x) => (x === '-inf' ? -Infinity : Number(x))) };
}

const ragged = (v) => Array.isArray(v) && depth(v) === 3 && v.some((x) => x.length !== v[0].length);
const rankOf = (v) => (Array.isArray(v) ? depth(v) : v.shape.length);

/** How many sequences a request has. */
export function batchOf(request) {
    const x = request.inputs_embeds ?? request.query;
    if (!x) throw new Error('this JSON has neither inputs_embeds nor query, and is no answer with attentions either');
    const rank = rankOf(x);
    return request.query ? (Array.isArray(x) ? x.length : x.shape[0]) : rank === 2 ? 1 : Array.isArray(x) ? x.length : x.shape[0];
}

/** Item b of the first dimension, where there is one; a dimension of 1 is everybody's. */
function item(t, b) {
    const n = t.values.length / Math.max(1, t.shape[0]), k = t.shape[0] === 1 ? 0 : b;
    return { shape: [1, ...t.shape.slice(1)], values: t.values.subarray(k * n, (k + 1) * n) };
}

/** Cuts the last dimensions: a ragged batch's masks are as wide as its longest sequence. */
function crop(t, rows, cols) {
    const shape = t.shape.slice(), wide = shape.at(-1), tall = shape.length > 2 ? shape.at(-2) : 1, w = Math.min(wide, cols), hh = shape.length > 2 ? Math.min(tall, rows) : 1;
    if (w === wide && hh === tall) return t;
    const planes = t.values.length / (wide * tall), out = new Float32Array(planes * w * hh);
    for (let p = 0, k = 0; p < planes; p++) for (let i = 0; i < hh; i++) for (let j = 0; j < w; j++) out[k++] = t.values[(p * tall + i) * wide + j];
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
        if (v === null || v === undefined || ['tokens', 'return_attentions', 'return_outputs', 'return_intermediates', 'encoding_format', 'layer', 'attentions'].includes(name)) continue;
        if (!TENSORS.includes(name)) { options[name] = name === 'causal_offset' && Array.isArray(v) ? v[b] : v; continue; }
        if (name === 'inputs_embeds' || name === 'encoder_hidden_states') {
            const single = rankOf(v) === 2, t = ragged(v) ? tensor([v[b]]) : tensor(v);
            tensors[name] = single ? { shape: [1, ...t.shape], values: t.values } : ragged(v) ? t : item(t, b);
        } else if (name === 'attention_bias' && rankOf(v) < 4) tensors[name] = tensor(v);
        else tensors[name] = item(tensor(v), b);
    }
    const x = tensors.inputs_embeds ?? tensors.query;
    const queries = x.shape.at(-2), past = tensors.past_key?.shape.at(-2) ?? 0;
    const keys = past + (tensors.key ?? tensors.encoder_hidden_states ?? x).shape.at(-2);
    for (const name of ['attention_mask', 'attention_bias']) if (tensors[name]) tensors[name] = crop(tensors[name], queries, keys);
    if (tensors.position_ids) tensors.position_ids = crop(tensors.position_ids, queries, queries);
    const labels = request.tokens && (Array.isArray(request.tokens[0]) ? request.tokens[b] : request.tokens);
    const cross = Boolean(tensors.encoder_hidden_states || (tensors.key && queries !== keys));
    const fits = (n) => (labels?.length === n ? labels : null);
    return {
        tensors, options, queries, keys, past, cross, queryTokens: fits(queries),
        keyTokens: request.key_tokens ?? (cross && queries !== keys ? null : past && labels ? [...Array.from({ length: past }, (_, k) => `past ${k}`), ...labels] : fits(keys)),
    };
}

/** The request's text; made once for each sequence and layer. */
export function bodyOf(one, extra) {
    const out = { ...one.options };
    one.encoded ??= Object.fromEntries(Object.entries(one.tensors).map(([name, t]) => [name, name === 'attention_mask' || name === 'position_ids' || name === 'lengths'
        ? { shape: t.shape, dtype: 'int32', data: base64(new Uint8Array(Int32Array.from(t.values).buffer)) }
        : { shape: t.shape, dtype: 'float32', data: base64(new Uint8Array(t.values.slice().buffer)) }]));
    return JSON.stringify({ ...out, ...extra, ...one.encoded });
}

/** Who sees whom, as <attention-map> takes it; null when everybody sees everything. */
export function maskOf(one, layer, heads) {
    const o = one.options, t = one.tensors, { queries, keys } = one;
    const causal = o.is_causal ?? layer?.is_causal ?? false, window = o.window ?? layer?.window ?? { left: -1, right: -1 };
    const shift = o.causal_offset ?? one.past, length = t.lengths ? t.lengths.values[0] : null;
    const rule = { offset: causal ? shift : null, left: window.left ?? -1, right: window.right ?? -1, shift, keys: null, length: queries };
    if (length !== null) {
        const real = length + (one.cross ? 0 : one.past);
        rule.keys = Uint8Array.from({ length: keys }, (_, j) => (j < real ? 1 : 0));
        if (!one.cross && !t.query) rule.length = length;
    }
    const m = t.attention_mask, bias = t.attention_bias;
    if (m && m.shape.length === 2) rule.keys = Uint8Array.from({ length: keys }, (_, j) => ((rule.keys?.[j] ?? 1) && m.values[m.shape[1] === 1 ? 0 : j] ? 1 : 0));
    const full = (m && m.shape.length > 2) || (bias && bias.values.includes(-Infinity));
    if (!full) return rule.offset === null && rule.left < 0 && rule.right < 0 && !rule.keys ? null : rule;
    const out = new Uint8Array(heads * queries * keys);
    const at = (x, h, i, j) => { // right-aligned, a dimension of 1 is everybody's
        const s = [1, 1, 1, 1, ...x.shape].slice(-4), u = x === m && x.shape.length === 3 ? [s[1], 1, s[2], s[3]] : s;
        return x.values[((u[1] === 1 ? 0 : h) * u[2] + (u[2] === 1 ? 0 : i)) * u[3] + (u[3] === 1 ? 0 : j)];
    };
    for (let h = 0, k = 0; h < heads; h++) {
        for (let i = 0; i < queries; i++) {
            for (let j = 0; j < keys; j++, k++) {
                const p = i + rule.shift, seen = (rule.offset === null || j <= i + rule.offset) && (rule.left < 0 || j >= p - rule.left) && (rule.right < 0 || j <= p + rule.right) && (!rule.keys || rule.keys[j]) && i < rule.length;
                out[k] = seen && (!m || m.shape.length === 2 || at(m, h, i, j)) && (!bias || at(bias, h, i, j) !== -Infinity) ? 1 : 0;
            }
        }
    }
    return out;
}

/** Numbers for any layer, the same every time: something to look at before one has data. */
export function generated(layer, tokens) {
    let seed = 12345;
    const next = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 31 - 1; };
    const make = (n, width) => ({ shape: [1, n, width], dtype: 'float32', data: base64(new Uint8Array(Float32Array.from({ length: n * width }, () => 1.7 * next()).buffer)) });
    return { inputs_embeds: make(tokens, layer.d_model), ...(layer.cross ? { encoder_hidden_states: make(Math.ceil(tokens / 2), layer.d_kv) } : {}) };
}

/* --- files ---------------------------------------------------------------------------------------- */

function readNPY(buffer) {
    const bytes = new Uint8Array(buffer);
    if (bytes.length < 12 || bytes[0] !== 0x93 || bytes[1] !== 0x4e) throw new Error('this is not a .npy file');
    const wide = bytes[6] > 1, n = wide ? new DataView(buffer).getUint32(8, true) : bytes[8] | (bytes[9] << 8), from = (wide ? 12 : 10) + n;
    const head = new TextDecoder().decode(bytes.subarray(wide ? 12 : 10, from));
    const kind = /'descr':\s*'([^']*)'/.exec(head)?.[1], shape = /'shape':\s*\(([^)]*)\)/.exec(head)?.[1].split(',').filter((s) => s.trim()).map(Number);
    const dtype = { '<f4': 'float32', '<f8': 'float64', '<f2': 'float16', '<i4': 'int32', '<i8': 'int64', '|b1': 'bool', '|u1': 'uint8' }[kind];
    if (!dtype || /'fortran_order':\s*True/.test(head)) throw new Error(`this .npy file holds ${kind} ${/True/.test(head) ? 'in Fortran order' : ''}; float32, float64 or float16 in C order can be shown`);
    return { shape, dtype, data: bytes.slice(from) };
}

const asMap = (t, more = {}) => {
    const shape = t.shape.length > 3 ? [t.shape.slice(0, -2).reduce((a, b) => a * b, 1), ...t.shape.slice(-2)] : t.shape;
    return { map: { shape, values: numbers(t), ...more } };
};

/** What a file holds: {request} to be sent, or {map} to be shown as it is. */
export async function readFile(file, layer) {
    const ending = file.name.split('.').at(-1).toLowerCase();
    if (ending === 'json') return readJSON(await file.text());
    const buffer = await file.arrayBuffer();
    if (ending === 'npy') {
        const t = readNPY(buffer);
        const inputs = (t.shape.length === 2 || t.shape.length === 3) && t.shape.at(-1) === layer?.d_model;
        return inputs ? { request: { inputs_embeds: t } } : asMap(t);
    }
    if (ending === 'safetensors') {
        const { tensors, metadata } = readSafetensors(buffer);
        const read = (text) => { try { return JSON.parse(text); } catch { return undefined; } };
        const options = Object.fromEntries(Object.entries(metadata).map(([k, v]) => [k, read(v)]).filter(([, v]) => v !== undefined));
        if (tensors.attentions) return asMap(tensors.attentions, tokensOf(options));
        if (tensors.inputs_embeds || tensors.query) return { request: { ...options, ...tensors } };
        const names = Object.keys(tensors);
        throw new Error(`the file holds ${names.slice(0, 4).join(', ')}${names.length > 4 ? ', …' : ''}; inputs_embeds, query with key and value, or attentions can be shown. Weights are loaded by attnd itself: attnd --model NAME=FILE`);
    }
    throw new Error(`${file.name}: drop a request or an answer as .json, or tensors as .npy or .safetensors`);
}

const tokensOf = (o) => { const t = Array.isArray(o.tokens?.[0]) ? o.tokens[0] : o.tokens; return t ? { queryTokens: t } : {}; };

export function readJSON(text) {
    let v;
    try { v = JSON.parse(text); } catch (e) { throw new Error(`this is not JSON: ${e.message}`); }
    if (v.inputs_embeds || v.query) return { request: v };
    if (v.shape && v.values) return { map: v };
    if (v.attentions) {
        const t = Array.isArray(v.attentions) ? tensor(v.attentions) : { shape: v.attentions.shape, values: numbers(v.attentions) };
        // A batch's first sequence; all heads of all layers of what an encoder answers.
        const first = t.shape.length === 4 ? { shape: t.shape.slice(1), values: t.values.slice(0, t.values.length / t.shape[0]) } : t.shape.length === 5 ? { shape: [t.shape[0], ...t.shape.slice(2)], values: firstOfBatch(t) } : t;
        const n = first.shape.at(-2), labels = tokensOf(v).queryTokens;
        return { map: { ...first, ...(labels?.length === n ? { queryTokens: labels } : {}) } };
    }
    throw new Error('this JSON has neither inputs_embeds nor query, and is no answer with attentions either');
}

function firstOfBatch(t) {
    const [layers, batch, ...rest] = t.shape, n = rest.reduce((a, b) => a * b, 1), out = new Float32Array(layers * n);
    for (let l = 0; l < layers; l++) out.set(t.values.subarray(l * batch * n, l * batch * n + n), l * n);
    return out;
}

/* --- the same thing elsewhere --------------------------------------------------------------------- */

/** What is on screen as a command or a program. w: {root, route, example, layer, head, index, key}. */
export function snippets(w) {
    const url = w.root + w.route, head = typeof w.head === 'number' ? w.head : null;
    const change = { ...(w.layer === null ? {} : { layer: w.layer }), return_outputs: false, return_attentions: head === null ? { reduce_heads: w.head } : { heads: [head] } };
    const source = w.example ? w.root + w.example : null, auth = w.key;
    const python = (v) => JSON.stringify(v).replace(/\bfalse\b/g, 'False').replace(/\btrue\b/g, 'True').replace(/\bnull\b/g, 'None');
    const curlKey = auth ? ' -H "Authorization: Bearer $ATTND_API_KEY"' : '';
    const merge = `python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin) | ${python(change)}))'`;
    return {
        curl: source ? `curl -s${curlKey} '${source}' |\n  ${merge} |\n  curl -s${curlKey} '${url}' --json @-`
            : `# request.json: the button below saves it\n${merge} < request.json |\n  curl -s${curlKey} '${url}' --json @-`,
        Python: `import json${auth ? ', os' : ''}, urllib.request

def call(url, body=None):
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, {"Content-Type": "application/json"${auth ? ', "Authorization": "Bearer " + os.environ["ATTND_API_KEY"]' : ''}})
    return json.load(urllib.request.urlopen(request))

body = ${source ? `call("${source}")` : 'json.load(open("request.json"))'}
body.update(${python(change)})
answer = call("${url}", body)
weights = answer["attentions"]${w.index}   # [query][key]
print(weights[0])`,
        JavaScript: `const headers = { 'Content-Type': 'application/json'${auth ? ", Authorization: 'Bearer ' + process.env.ATTND_API_KEY" : ''} };
const body = ${source ? `await (await fetch('${source}', { headers })).json()` : "JSON.parse(await (await import('node:fs/promises')).readFile('request.json', 'utf8'))"};
Object.assign(body, ${JSON.stringify(change)});
const answer = await (await fetch('${url}', { method: 'POST', headers, body: JSON.stringify(body) })).json();
const weights = answer.attentions${w.index};   // [query][key]
console.log(JSON.stringify(weights[0]));`,
    };
}
