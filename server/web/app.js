// app.js: the page: which model, layer and input, what the server says about them, files that people bring,
// and code that they take. Addresses are relative to the page: a path prefix changes nothing.

import './attention-map.js';
import { count, layerAndHead, visible } from './data.js';
import { refill } from './dom.js';
import { fromLink, toLink } from './model.js';
import { base64, copy, offer } from './save.js';
import { THEME, sheet } from './style.js';

/* --- requests ---------------------------------------------------------------------------------- */

const ROOT = new URL('.', document.baseURI);
const KEY = 'attnd-api-key';

class Refused extends Error {
    constructor(status, problem) {
        super(problem.detail ?? problem.error ?? `the server answered ${status}`);
        Object.assign(this, { status, problem });
    }
}

const keyOf = () => { try { return sessionStorage.getItem(KEY); } catch { return null; } };
const setKey = (key) => sessionStorage.setItem(KEY, key);
const hasKey = () => Boolean(keyOf());
const address = (path) => new URL(path, ROOT).href;

async function send(path, options = {}) {
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

const getJSON = async (path) => (await send(path)).json();

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
function readSafetensors(buffer) {
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
function stacked(parts) {
    const [{ shape, values }] = parts, all = new Float32Array(parts.length * values.length);
    parts.forEach((part, k) => all.set(part.values, k * values.length));
    return { shape: [parts.length, ...shape], values: all };
}

const post = (path, body, signal, Accept) => send(path,
    { method: 'POST', body, signal, headers: { 'Content-Type': 'application/json', Accept } });

function fromBase64(text) {
    const characters = atob(text), bytes = new Uint8Array(characters.length);
    for (let k = 0; k < bytes.length; k++) bytes[k] = characters.charCodeAt(k);
    return bytes;
}

/** A tensor object's numbers as float32. `data` is base64 or bytes. */
function numbers({ shape, dtype = 'float32', data }) {
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
const rankOf = (v) => (Array.isArray(v) ? depth(v) : v.shape.length);
const ragged = (v) => Array.isArray(v) && depth(v) === 3 && v.some((x) => x.length !== v[0].length);

/** Nested arrays or a tensor object as {shape, values}. */
function tensor(v) {
    if (!Array.isArray(v)) return { shape: v.shape, values: numbers(v) };
    const shape = [];
    for (let x = v, n = depth(v); n > 0; n--, x = x[0] ?? []) shape.push(x.length);
    const number = (x) => (x === '-inf' ? -Infinity : Number(x));
    return { shape, values: Float32Array.from(v.flat(shape.length), number) };
}

/* --- one sequence ------------------------------------------------------------------------------ */

/** How many sequences a request has. */
function batchOf(request) {
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
function bodyOf(one, extra) {
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
function generated(layer, tokens) {
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

function readJSON(text) {
    let v = null;
    try { v = JSON.parse(text) ?? {}; } catch (e) { throw new Error(`this is not JSON: ${e.message}`); }
    if (v.inputs_embeds || v.query) return { request: v };
    if (v.shape && v.values) return { map: v };
    if (v.attentions) return asMap(tensor(v.attentions), v);
    throw new Error('this JSON has neither inputs_embeds nor query, and is no answer with attentions either');
}

/** What a file holds: {request} to be sent, or {map} to be shown as it is. */
async function readFile(file, layer) {
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

/** What is on screen as a command or a program: `change` is what a request says besides its data. */
function snippets({ root, route, example, inputs, change, index, axes, key }) {
    const url = root + route, source = example && root + example;
    const texts = inputs !== undefined, given = JSON.stringify({ inputs });
    const json = JSON.stringify(change), python = json.replace('false', 'False');
    const pythonKey = key ? ', "Authorization": "Bearer " + os.environ["ATTND_API_KEY"]' : '';
    const nodeKey = key ? ", Authorization: 'Bearer ' + process.env.ATTND_API_KEY" : '';
    const curl = `curl -s${key ? ' -H "Authorization: Bearer $ATTND_API_KEY"' : ''}`;
    const merge = `python3 -c 'import json,sys; print(json.dumps(json.load(sys.stdin) | ${python}))'`;
    const whole = JSON.stringify({ inputs, ...change }).replaceAll("'", "'\\''");
    return {
        curl: texts ? `${curl} '${url}' \\\n  --json '${whole}'` : `${source ? `${curl} '${source}' |\n  ${merge}`
            : `# request.json: the button below saves it\n${merge} < request.json`} |
  ${curl} '${url}' --json @-`,
        Python: `import json${key ? ', os' : ''}, urllib.request

def call(url, body=None):
    headers = {"Content-Type": "application/json"${pythonKey}}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    return json.load(urllib.request.urlopen(request))

body = ${texts ? given : source ? `call("${source}")` : 'json.load(open("request.json"))'}
body.update(${python})
answer = call("${url}", body)
weights = answer["attentions"]${index}   # ${axes}
print(weights[0])`,
        JavaScript: `const headers = { 'Content-Type': 'application/json'${nodeKey} };
const body = ${texts ? given : source ? `await (await fetch('${source}', { headers })).json()`
        : "JSON.parse((await import('node:fs')).readFileSync('request.json', 'utf8'))"};
Object.assign(body, ${json});
const answer = await (await fetch('${url}', { method: 'POST', headers, body: JSON.stringify(body) })).json();
const weights = answer.attentions${index};   // ${axes}
console.log(JSON.stringify(weights[0]));`,
    };
}

/* --- the page ---------------------------------------------------------------------------------- */

document.adoptedStyleSheets = [sheet(THEME)];

const $ = (id) => document.getElementById(id);
const on = (id, type, f) => $(id).addEventListener(type, f);
const map = $('map');
const MOST_CELLS = 1 << 24; // 64 MiB of float32 come as they are; more comes pooled
const SIDE = 512; // a pooled map's longer side
const MOST_ENCODED = 1 << 23; // of all heads of an encoder together
const GENERATED = [12, 64, 512];

const page = {
    models: [], model: null, layer: 0, example: '', batch: 0,
    request: null, one: null, others: [], running: null,
};

const modelPath = () => `v1/models/${encodeURIComponent(page.model.name)}`;
const examplePath = (name) => `${modelPath()}/examples/${encodeURIComponent(name)}`;
const layerInfo = () => page.model?.layers[page.layer === 'all' ? 0 : page.layer];
const alike = ({ layers }) => layers.length > 1 && // one input suits them all
    new Set(layers.map((l) => String([l.d_model, l.num_heads, l.cross]))).size === 1;
const texts = () => page.example === 'text'; // is chosen
const encoded = () => page.request?.inputs !== undefined; // is seen
const say = (text) => { $('status').textContent = text; };

/* --- links ---------------------------------------------------------------------------------------- */

let linked = 0;

function writeLink() {
    clearTimeout(linked);
    linked = setTimeout(() => {
        const ours = { model: page.model?.name, layer: page.layer, ex: page.example, b0: page.batch };
        const others = page.others.filter(([k]) => !(k in ours));
        const own = Object.entries(ours).filter(([k, v]) => v || (k === 'layer' && v === 0));
        const typed = [$('first').value, $('second').value]; // never in the link, but here after a reload
        history.replaceState(typed, '', `#${toLink(map.getState(), [...others, ...own])}`);
    }, 150);
}

function readLink() {
    const { state, others } = fromLink(location.hash.slice(1));
    page.others = others;
    map.setState(state);
    return Object.fromEntries(others);
}

/* --- failing in words ----------------------------------------------------------------------------- */

const mib = (n) => `${(n / 1048576).toFixed(1)} MiB`;

function failed(e) {
    if (e.name === 'AbortError') return;
    say('');
    if (e.status === 401) {
        $('own-dialog').close();
        $('locked').hidden = false;
        $('key').focus();
        if (hasKey()) map.showError('The server does not take this key.');
        return;
    }
    const p = e.problem ?? {};
    const needs = p.needed_bytes
        ? ` It needs ${mib(p.needed_bytes)}, the limit is ${mib(p.limit_bytes)}.` : '';
    map.showError(`${e.message}${needs}${p.request_id ? ` (request ${p.request_id})` : ''}`);
}

const guard = (f) => async (...args) => { try { await f(...args); } catch (e) { failed(e); } };

/* --- choosing ------------------------------------------------------------------------------------- */

const start = guard(async () => {
    const link = readLink();
    if (history.state) [$('first').value, $('second').value] = history.state;
    say('Asking the server for its models…');
    page.models = (await getJSON('v1/models')).models;
    $('locked').hidden = true;
    say('');
    if (page.models.length === 0) {
        map.showError('The server has no models. Start it with attnd --model NAME=PATH.');
        return;
    }
    refill($('model'), page.models.map((m) => [m.name, m.name]), '');
    const named = page.models.find((m) => m.name === link.model);
    await chooseModel(named ?? page.models[0], named || !link.model ? link : {});
});

async function chooseModel(model, link = {}) {
    page.model = model;
    $('model').value = model.name;
    const { examples } = await getJSON(`${modelPath()}/examples`);
    const inputs = [...(model.encoder?.tokenizer ? [['text', 'text']] : []), ...examples.map((x) => [x, x]),
        ...GENERATED.map((n) => [`generated-${n}`, `generated, ${n} tokens`])];
    refill($('example'), [...inputs, ['own', 'own data']], '');
    const [wanted] = inputs.find(([x]) => x === link.ex) ?? inputs[0];
    const all = link.layer === 'all' && (wanted === 'text' || alike(model));
    const layer = all || model.layers[link.layer] ? link.layer : null;
    await chooseExample(wanted, layer, Number(link.b0) || 0);
}

function setExample(name) {
    page.example = $('example').value = name;
    $('texts').hidden = !texts();
    if (!page.model) return;
    const all = texts() || alike(page.model) ? [['all', texts() ? 'all' : 'all, same input']] : [];
    const layers = page.model.layers.map((l) => [l.layer, `${l.layer}${l.cross ? ', cross' : ''}`]);
    refill($('layer'), [...layers, ...all], page.layer);
}

async function chooseExample(name, layer = null, batch = 0) {
    setExample(name);
    if (texts()) {
        await loadTexts(layer);
        return;
    }
    const made = /^generated-(\d+)$/.exec(name);
    const request = made ? generated(layerInfo() ?? page.model.layers[0], Number(made[1]))
        : await getJSON(examplePath(name));
    await chooseRequest(request, layer ?? request.layer ?? (made ? page.layer : 0), batch);
}

async function chooseRequest(request, layer, batch = 0) {
    const n = batchOf(request);
    page.request = request;
    page.layer = layer === 'all' ? layer : page.model?.layers[layer] ? Number(layer) : 0;
    page.batch = Math.min(batch, Math.max(0, n - 1));
    $('layer').value = page.layer;
    $('layer').disabled = Boolean(request.query);
    refill($('sequence'), Array.from({ length: n }, (_, k) => [k, k]), page.batch);
    $('sequence-label').hidden = n < 2;
    if (n === 0) {
        map.data = null;
        throw new Error('The request has no sequences (B = 0).');
    }
    page.one = pick(request, page.batch);
    await load();
}

/* --- maps ----------------------------------------------------------------------------------------- */

const routeOf = () => (page.request.query ? 'v1/scaled-dot-product-attention'
    : `${modelPath()}/${encoded() ? 'encode' : 'attention'}`);

async function ask(layer, wanted) {
    const extra = { return_outputs: false, return_attentions: wanted };
    if (!page.request.query) extra.layer = layer;
    const reply = await post(routeOf(), bodyOf(page.one, extra), page.running.signal,
        'application/vnd.safetensors');
    const { attentions } = readSafetensors(await reply.arrayBuffer()).tensors;
    if (!attentions) throw new Error('the answer holds no attentions');
    return { shape: attentions.shape.slice(-3), values: numbers(attentions) };
}

function begin() {
    page.running?.abort();
    page.running = new AbortController();
    map.showError('');
    say('Asking for the map…');
}

async function load() {
    const { one, model, layer, request, example } = page, all = layer === 'all';
    const layers = all ? model.layers.map((l) => l.layer) : [layer];
    const heads = one.tensors.query?.shape.at(-3) ?? layerInfo().num_heads;
    begin();
    let data = null;
    if (layers.length * heads * one.queries * one.keys <= MOST_CELLS) {
        const parts = [];
        for (const k of layers) parts.push(await ask(k, { heads: 'all' }));
        data = all ? stacked(parts) : parts[0];
    } else if (all) {
        throw new Error('All layers of this input are too much for one page: choose a layer.');
    } else {
        data = await loadPooled(layer, heads);
    }
    say('');
    const source = request.query ? ['own query, key and value'] : [model.name, `layer ${layer}`];
    const title = [...source, example].join(', '), { queryTokens, keyTokens } = one;
    map.data = { title, queryTokens, keyTokens, ...data, mask: maskOf(one, layerInfo(), heads) };
    writeLink();
}

/** Blocks of cells, at most SIDE a side; exact cells follow where one looks. */
async function loadPooled(layer, heads) {
    const { queries, keys } = page.one;
    const { values } = await ask(layer, { heads: 'all', pool: { size: SIDE, kind: 'max' } });
    const block = [queries, keys].map((n) => Math.ceil(n / SIDE));
    return { shape: [heads, queries, keys], values, pooled: { kind: 'max', block } };
}

on('map', 'attention-need', guard(async ({ detail }) => {
    const { head, queries, keys } = detail, { data } = map, [layer, one] = layerAndHead(head, perLayer());
    const { values } = encoded()
        ? await encode(page.request.inputs, { layers: [layer], heads: [one], queries, keys })
        : await ask(page.layer, { heads: [head], queries, keys });
    if (map.data === data) map.refine({ head, queries, keys, values });
}));

/* --- texts: all layers of a whole encoder ----------------------------------------------------------- */

const perLayer = () => map.data.shape.at(-3);

async function encode(inputs, wanted) {
    const body = JSON.stringify({ inputs, return_embeddings: false, return_attentions: wanted,
        encoding_format: 'base64' });
    const reply = await post(`${modelPath()}/encode`, body, page.running.signal, 'application/json');
    const answer = await reply.json();
    return { ...answer, ...tensor(answer.attentions) };
}

async function loadTexts(layer = null) {
    const { name, layers, encoder } = page.model, typed = [$('first').value, $('second').value];
    const inputs = typed[1] ? [typed] : typed[0];
    begin();
    // Blocks of one cell, which is the map itself, unless there are too many.
    const size = Math.floor(Math.sqrt(MOST_ENCODED / (layers.length * layers[0].num_heads)));
    const { tokens: [tokens], shape, values, usage } = await encode(inputs, { pool: { size, kind: 'max' } });
    const n = tokens.length, block = Math.ceil(n / size);
    const special = (k) => encoder.special_tokens.includes(tokens[k]);
    if (!location.hash) map.setState({ view: 'grid' }); // nobody has chosen another
    Object.assign(page, { request: { inputs }, one: null, batch: 0 });
    $('sequence-label').hidden = true;
    $('layer').disabled = false;
    say(usage.truncated[0] ? `The text is cut: this model takes ${encoder.max_tokens} tokens.` : '');
    map.data = {
        title: [name, ...typed.filter(Boolean).map((t) => visible(t, 40))].join(', '),
        shape: [shape[0], shape[2], n, n], values, queryTokens: tokens,
        breaks: count(n).filter((k) => k > 1 && special(k - 1) && !special(k)),
        mask: layers.some(({ window }) => window.left >= 0) ? { windows: layers.map((l) => l.window) } : null,
        pooled: block > 1 ? { kind: 'max', block: [block, block] } : null,
    };
    $('special').disabled = block > 1;
    if (layer !== null) goToLayer(layer);
    followState(map.getState());
}

/** The same head in another layer; for "all" the mean. */
function goToLayer(layer) {
    const { head } = map.getState(), per = perLayer(), named = typeof head === 'string';
    map.setState({ head: layer !== 'all' ? layer * per + (named ? 0 : head % per) : named ? head : 'mean' });
}

const specials = () => page.model.encoder.special_tokens.join(',');

function followState({ head, hide }) {
    if (encoded()) {
        page.layer = typeof head === 'string' ? 'all' : layerAndHead(head, perLayer())[0];
        $('layer').value = page.layer;
        $('special').checked = hide === specials();
    }
    writeLink();
}

on('texts', 'submit', guard(async (e) => {
    e.preventDefault();
    await loadTexts();
}));
on('special', 'change', ({ target }) => map.setState({ hide: target.checked ? specials() : '' }));

/* --- own data ------------------------------------------------------------------------------------- */

async function showOwn({ request, map: data }, name) {
    setExample('own');
    if (data) {
        page.running?.abort();
        Object.assign(page, { request: null, one: null, batch: 0 });
        map.showError('');
        map.data = { title: name, ...data };
        $('sequence-label').hidden = true;
    } else {
        await chooseRequest(request, request.layer ?? (page.layer === 'all' ? 0 : page.layer));
    }
    $('own-dialog').close();
    writeLink();
}

/** Shows what `read` finds, or says why not: in the dialog, and on the page where that is in sight. */
async function take(read, name) {
    $('own-error').textContent = '';
    try {
        await showOwn(await read(), name);
    } catch (e) {
        say('');
        $('own-error').textContent = e.message;
        if (e instanceof Refused || !$('own-dialog').open) failed(e);
    }
}

const takeFile = (file) => file && take(() => readFile(file, layerInfo()), file.name);

on('own', 'click', () => $('own-dialog').showModal());
on('run', 'click', () => take(() => readJSON($('text').value), 'own data'));
on('file', 'change', (e) => takeFile(e.target.files[0]));
for (const type of ['dragover', 'dragleave', 'drop']) {
    document.addEventListener(type, (e) => {
        e.preventDefault();
        document.body.classList.toggle('drop', type === 'dragover');
        if (type === 'drop') takeFile(e.dataTransfer.files[0]);
    });
}

/* --- code ----------------------------------------------------------------------------------------- */

let language = 'curl';
const languages = document.querySelectorAll('[data-language]');

function showCode() {
    const { request, example, batch } = page, shown = request !== null;
    $('snippet').textContent = 'This map came from a file, not from the server.';
    $('copy').disabled = $('save-request').disabled = !shown;
    for (const b of languages) b.setAttribute('aria-pressed', b.dataset.language === language);
    if (!$('code-dialog').open) $('code-dialog').showModal();
    if (!shown) return;
    const stored = !/^(own|text|generated-\d+)$/.test(example), { inputs, query } = request;
    const encoder = encoded(), single = !encoder && rankOf(request.inputs_embeds ?? query) === 2;
    let { head } = map.getState(), { layer } = page;
    const named = typeof head === 'string';
    if (layer === 'all' || encoder) [layer, head] = named ? [0, head] : layerAndHead(head, perLayer());
    const wanted = named ? { reduce_heads: head } : { heads: [head] };
    const each = encoder && named; // layers
    const change = encoder ? { return_embeddings: false,
        return_attentions: each ? wanted : { layers: [layer], ...wanted } }
        : { ...(query ? {} : { layer }), return_outputs: false, return_attentions: wanted };
    $('snippet').textContent = snippets({
        root: address(''), route: routeOf(), example: stored ? examplePath(example) : null, inputs, change,
        index: each ? '' : encoder ? '[0][0][0]' : single ? '[0]' : `[${batch}][0]`,
        axes: `${each ? '[layer][sequence][head]' : ''}[query][key]`, key: hasKey(),
    })[language];
}

on('code', 'click', showCode);
for (const b of languages) {
    b.addEventListener('click', () => {
        language = b.dataset.language;
        showCode();
    });
}
on('copy', 'click', (e) => copy($('snippet').textContent, e.target));
on('save-request', 'click', () => {
    const packed = (_, v) => (v instanceof Uint8Array ? base64(v) : v);
    offer('request.json', JSON.stringify(page.request, packed), 'application/json');
});

/* --- the rest ------------------------------------------------------------------------------------- */

for (const b of document.querySelectorAll('[data-close]')) {
    b.addEventListener('click', () => b.closest('dialog').close());
}
on('model', 'change', guard((e) => chooseModel(page.models.find((m) => m.name === e.target.value))));
on('layer', 'change', guard(async (e) => {
    const layer = e.target.value === 'all' ? 'all' : Number(e.target.value);
    if (texts()) {
        if (encoded()) goToLayer(layer);
        return;
    }
    page.layer = layer;
    if (page.example.startsWith('generated')) await chooseExample(page.example, page.layer);
    else if (page.one) await load();
}));
on('example', 'change', guard(async ({ target }) => {
    if (target.value !== 'own') {
        await chooseExample(target.value);
        return;
    }
    target.value = page.example;
    $('own-dialog').showModal();
}));
on('sequence', 'change', guard((e) => chooseRequest(page.request, page.layer, Number(e.target.value))));
on('hold', 'click', () => {
    if (!map.data) return;
    map.other = map.data;
    map.setState({ view: 'compare', other: map.getState().head });
});
on('theme', 'change', ({ target }) => {
    for (const node of [document.documentElement, map]) node.setAttribute('theme', target.value);
});
on('locked', 'submit', (e) => {
    e.preventDefault();
    setKey($('key').value.trim());
    $('key').value = '';
    map.showError('');
    start();
});
on('map', 'attention-statechange', ({ detail }) => followState(detail));
addEventListener('hashchange', guard(async () => {
    const link = readLink(), { model, layer, ex, b0 } = link;
    if (page.model && model && model !== page.model.name) await start();
    else if (ex && ex !== page.example && ex !== 'own') await chooseExample(ex, layer, Number(b0) || 0);
}));
start();
