// app.js: the page: which model, layer and input, and what the server says about them.

import './attention-map.js';
import { refill } from './dom.js';
import {
    Refused, address, batchOf, bodyOf, generated, getJSON, hasKey, maskOf, numbers, pick, post, setKey,
} from './request.js';
import { base64, copy, offer } from './save.js';
import { fromLink, toLink } from './state.js';

const $ = (id) => document.getElementById(id);
const map = $('map');
const MOST_CELLS = 1 << 24; // 64 MiB of float32 come as they are; more comes pooled
const SIDE = 512; // a pooled map's longer side
const GENERATED = [12, 64, 512];

const page = {
    models: [], model: null, layer: 0, example: '', batch: 0,
    request: null, one: null, others: [], running: null,
};

const layerInfo = () => page.model?.layers[page.layer === 'all' ? 0 : page.layer];
const say = (text) => { $('status').textContent = text; };

/* --- links ---------------------------------------------------------------------------------------- */

const OURS = ['model', 'layer', 'ex', 'b0'];
let linked = 0;

function writeLink() {
    clearTimeout(linked);
    linked = setTimeout(() => {
        const own = [['model', page.model?.name], ['layer', page.layer], ['ex', page.example],
            ['b0', page.batch || undefined]].filter(([, v]) => v !== undefined && v !== '');
        const others = page.others.filter(([k]) => !OURS.includes(k));
        history.replaceState(null, '', `#${toLink(map.getState(), [...others, ...own])}`);
    }, 150);
}

function readLink() {
    const { state, others } = fromLink(location.hash.slice(1));
    page.others = others;
    map.setState(state);
    return Object.fromEntries(others);
}

/* --- failing in words ----------------------------------------------------------------------------- */

function failed(e) {
    if (e.name === 'AbortError') return;
    say('');
    if (e instanceof Refused && e.status === 401) {
        $('locked').hidden = false;
        $('key').focus();
        if (hasKey()) map.showError('The server does not take this key.');
        return;
    }
    const p = e.problem ?? {}, needs = p.needed_bytes
        ? ` It needs ${mib(p.needed_bytes)}, the limit is ${mib(p.limit_bytes)}.` : '';
    map.showError(`${e.message}${needs}${p.request_id ? ` (request ${p.request_id})` : ''}`);
}

const mib = (n) => `${(n / 1048576).toFixed(1)} MiB`;
const guard = (f) => async (...args) => { try { await f(...args); } catch (e) { failed(e); } };

/* --- choosing ------------------------------------------------------------------------------------- */

async function start() {
    const link = readLink();
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
}

async function chooseModel(model, link = {}) {
    page.model = model;
    $('model').value = model.name;
    const first = model.layers[0], alike = model.layers.length > 1
        && model.layers.every((l) => l.d_model === first.d_model && l.num_heads === first.num_heads
        && l.cross === first.cross);
    refill($('layer'), [...model.layers.map((l) => [l.layer, `${l.layer}${l.cross ? ', cross' : ''}`]),
        ...(alike ? [['all', 'all, same input']] : [])], 0);
    const { examples } = await getJSON(`${modelPath()}/examples`);
    refill($('example'), [...examples.map((x) => [x, x]),
        ...GENERATED.map((n) => [`generated-${n}`, `generated, ${n} tokens`]), ['own', 'own data']], '');
    const wanted = [...$('example').options].some((o) => o.value === link.ex && link.ex !== 'own') ? link.ex
        : $('example').options[0].value;
    const layer = link.layer === 'all' && alike ? 'all' : model.layers[Number(link.layer)]
        ? Number(link.layer) : null;
    await chooseExample(wanted, layer, Number(link.b0) || 0);
}

async function chooseExample(name, layer = null, batch = 0) {
    page.example = name;
    $('example').value = name;
    if (name === 'own') { if (!page.request) $('own-dialog').showModal(); return; }
    const made = /^generated-(\d+)$/.exec(name);
    const request = made ? generated(layerInfo() ?? page.model.layers[0], Number(made[1]))
        : await getJSON(examplePath(name));
    await chooseRequest(request, layer ?? request.layer ?? (made ? page.layer : 0), batch);
}

const modelPath = () => `v1/models/${encodeURIComponent(page.model.name)}`;
const examplePath = (name) => `${modelPath()}/examples/${encodeURIComponent(name)}`;

async function chooseRequest(request, layer, batch = 0) {
    const n = batchOf(request);
    page.request = request;
    page.layer = layer === 'all' || page.model?.layers[layer] ? layer : 0;
    page.batch = Math.min(batch, Math.max(0, n - 1));
    $('layer').value = String(page.layer);
    $('layer').disabled = Boolean(request.query);
    refill($('sequence'), Array.from({ length: n }, (_, k) => [k, k]), page.batch);
    $('sequence-label').hidden = n < 2;
    if (n === 0) { map.data = null; map.showError('The request has no sequences (B = 0).'); return; }
    page.one = pick(request, page.batch);
    await load();
}

/* --- maps ----------------------------------------------------------------------------------------- */

const routeOf = () => (page.request.query ? 'v1/scaled-dot-product-attention'
    : `${modelPath()}/attention`);

async function ask(layer, wanted) {
    const extra = { return_outputs: false, return_attentions: wanted };
    const body = bodyOf(page.one, page.request.query ? extra : { layer, ...extra });
    const answer = await post(routeOf(), body, page.running.signal);
    if (!answer.attentions) throw new Error('the answer holds no attentions');
    const { shape } = answer.attentions;
    return { shape: shape.length === 4 ? shape.slice(1) : shape, values: numbers(answer.attentions) };
}

const headsOf = () => page.one.tensors.query?.shape.at(-3) ?? layerInfo().num_heads;

async function load() {
    page.running?.abort();
    page.running = new AbortController();
    const { one } = page, layers = page.layer === 'all' ? page.model.layers.map((l) => l.layer)
        : [page.layer], heads = headsOf();
    const cells = layers.length * heads * one.queries * one.keys;
    const about = { title: titleOf(), queryTokens: one.queryTokens, keyTokens: one.keyTokens };
    map.showError('');
    say('Asking for the map…');
    let data = null;
    if (cells <= MOST_CELLS) {
        const parts = [];
        for (const layer of layers) parts.push(await ask(layer, { heads: 'all' }));
        const shape = layers.length > 1 ? [layers.length, ...parts[0].shape] : parts[0].shape;
        const values = parts.length === 1 ? parts[0].values
            : new Float32Array(parts.reduce((n, p) => n + p.values.length, 0));
        if (parts.length > 1) parts.reduce((n, p) => { values.set(p.values, n); return n + p.values.length; },
            0);
        data = { shape, values };
    } else if (layers.length > 1) {
        throw new Error('All layers of this input are too much for one page: choose a layer.');
    } else {
        data = await loadPooled(layers[0], heads);
    }
    say('');
    map.data = { ...about, ...data, mask: maskOf(one, layerInfo(), data.shape.at(-3)) };
    map.setState(map.getState());
    writeLink();
}

const titleOf = () => [page.request.query ? 'own query, key and value' : page.model.name, page.request.query
    ? '' : `layer ${page.layer}`, page.example].filter(Boolean).join(', ');

/** Blocks of cells, at most SIDE a side; exact cells follow where one looks. */
async function loadPooled(layer, heads) {
    const { queries, keys } = page.one;
    const { values } = await ask(layer, { heads: 'all', pool: { size: SIDE, kind: 'max' } });
    const block = [queries, keys].map((n) => Math.ceil(n / SIDE));
    return { shape: [heads, queries, keys], values, pooled: { kind: 'max', block } };
}

map.addEventListener('attention-need', guard(async ({ detail }) => {
    const { head, queries, keys } = detail, data = map.data;
    const { values } = await ask(page.layer, { heads: [head], queries, keys });
    if (map.data === data) map.refine({ head, queries, keys, values });
}));

/* --- own data ------------------------------------------------------------------------------------- */

const own = () => import('./own.js'); // most visits do without it

async function showOwn({ request, map: data }, name = '') {
    if (data) {
        page.running?.abort();
        Object.assign(page, { request: null, one: null, example: 'own', batch: 0 });
        map.showError('');
        map.data = { title: name || 'own data', ...data };
    } else {
        page.example = 'own';
        await chooseRequest(request, request.layer ?? (page.layer === 'all' ? 0 : page.layer));
    }
    $('example').value = 'own';
    $('sequence-label').hidden = !page.request || batchOf(page.request) < 2;
    $('own-dialog').close();
    writeLink();
}

const takeFile = async (file) => {
    try {
        if (file) await showOwn(await (await own()).readFile(file, layerInfo()), file.name);
    } catch (e) {
        $('own-error').textContent = e.message;
        failed(e);
    }
};

$('run').addEventListener('click', async () => {
    $('own-error').textContent = '';
    try {
        await showOwn((await own()).readJSON($('text').value));
    } catch (e) {
        $('own-error').textContent = e.message;
        if (e instanceof Refused && e.status === 401) { $('own-dialog').close(); failed(e); }
    }
});
$('file').addEventListener('change', (e) => takeFile(e.target.files[0]));
for (const [type, on] of [['dragover', true], ['dragleave', false], ['drop', false]]) {
    document.addEventListener(type, (e) => {
        e.preventDefault();
        document.body.classList.toggle('drop', on);
        if (type === 'drop') takeFile(e.dataTransfer.files[0]);
    });
}

/* --- code ----------------------------------------------------------------------------------------- */

let language = 'curl';

async function showCode() {
    const shown = page.request !== null;
    let text = 'This map came from a file, not from the server.';
    $('snippet').textContent = '';
    if (shown) {
        const { request, layer, example } = page;
        const isOurs = example !== 'own' && !example.startsWith('generated');
        const x = request.inputs_embeds ?? request.query;
        const single = Array.isArray(x) ? !Array.isArray(x[0]?.[0]) : x.shape.length === 2;
        text = (await own()).snippets({
            root: address(''), route: routeOf(), example: isOurs ? examplePath(example) : null,
            layer: request.query ? null : layer === 'all' ? 0 : layer, head: map.getState().head,
            index: single ? '[0]' : `[${page.batch}][0]`, key: hasKey(),
        })[language];
    }
    $('snippet').textContent = text;
    $('copy').disabled = $('save-request').disabled = !shown;
    for (const b of document.querySelectorAll('[data-language]')) b.setAttribute('aria-pressed',
        String(b.dataset.language === language));
    if (!$('code-dialog').open) $('code-dialog').showModal();
}

$('code').addEventListener('click', showCode);
for (const b of document.querySelectorAll('[data-language]')) b.addEventListener('click', () => {
    language = b.dataset.language;
    showCode();
});
$('copy').addEventListener('click', (e) => copy($('snippet').textContent, e.target));
$('save-request').addEventListener('click', () => {
    const packed = (_, v) => (v instanceof Uint8Array ? base64(v) : v);
    offer('request.json', JSON.stringify(page.request, packed), 'application/json');
});

/* --- the rest ------------------------------------------------------------------------------------- */

$('own').addEventListener('click', () => $('own-dialog').showModal());
for (const b of document.querySelectorAll('[data-close]')) b.addEventListener('click', () =>
    b.closest('dialog').close());
$('model').addEventListener('change', guard((e) =>
    chooseModel(page.models.find((m) => m.name === e.target.value))));
$('layer').addEventListener('change', guard(async (e) => {
    page.layer = e.target.value === 'all' ? 'all' : Number(e.target.value);
    if (page.example.startsWith('generated')) await chooseExample(page.example, page.layer);
    else if (page.one) await load();
}));
$('example').addEventListener('change', guard((e) => chooseExample(e.target.value)));
$('sequence').addEventListener('change', guard((e) =>
    chooseRequest(page.request, page.layer, Number(e.target.value))));
$('hold').addEventListener('click', () => {
    if (!map.data) return;
    map.other = map.data;
    map.setState({ view: 'compare', other: map.getState().head });
});
$('theme').addEventListener('change', (e) => {
    document.documentElement.dataset.theme = e.target.value;
    map.setAttribute('theme', e.target.value);
});
const unlock = guard(async () => {
    setKey($('key').value.trim());
    $('key').value = '';
    map.showError('');
    await start();
});
$('unlock').addEventListener('click', unlock);
$('key').addEventListener('keydown', (e) => { if (e.key === 'Enter') unlock(); });
map.addEventListener('attention-statechange', writeLink);
addEventListener('hashchange', guard(async () => {
    const link = readLink();
    if (page.model && link.model && link.model !== page.model.name) await start();
    else if (link.ex && link.ex !== page.example && link.ex !== 'own') await chooseExample(link.ex,
        link.layer === 'all' ? 'all' : Number(link.layer) || 0, Number(link.b0) || 0);
}));
guard(start)();
