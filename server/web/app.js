// app.js: the page: which model, layer and input, and what the server says about them.

import './attention-map.js';
import { refill } from './dom.js';
import {
    Refused, address, batchOf, bodyOf, generated, getJSON, hasKey, maskOf, numbers, pick, post, rankOf,
    readFile, readJSON, setKey, snippets, stacked,
} from './request.js';
import { base64, copy, offer } from './save.js';
import { fromLink, toLink } from './state.js';
import { THEME, sheet } from './style.js';

document.adoptedStyleSheets = [sheet(THEME)];

const $ = (id) => document.getElementById(id);
const on = (id, type, f) => $(id).addEventListener(type, f);
const map = $('map');
const MOST_CELLS = 1 << 24; // 64 MiB of float32 come as they are; more comes pooled
const SIDE = 512; // a pooled map's longer side
const GENERATED = [12, 64, 512];

const page = {
    models: [], model: null, layer: 0, example: '', batch: 0,
    request: null, one: null, others: [], running: null,
};

const modelPath = () => `v1/models/${encodeURIComponent(page.model.name)}`;
const examplePath = (name) => `${modelPath()}/examples/${encodeURIComponent(name)}`;
const layerInfo = () => page.model?.layers[page.layer === 'all' ? 0 : page.layer];
const say = (text) => { $('status').textContent = text; };

/* --- links ---------------------------------------------------------------------------------------- */

let linked = 0;

function writeLink() {
    clearTimeout(linked);
    linked = setTimeout(() => {
        const ours = { model: page.model?.name, layer: page.layer, ex: page.example, b0: page.batch };
        const others = page.others.filter(([k]) => !(k in ours));
        const own = Object.entries(ours).filter(([k, v]) => v || (k === 'layer' && v === 0));
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
    const { layers } = model, shape = (l) => String([l.d_model, l.num_heads, l.cross]);
    const alike = layers.length > 1 && layers.every((l) => shape(l) === shape(layers[0]));
    page.model = model;
    $('model').value = model.name;
    refill($('layer'), [...layers.map((l) => [l.layer, `${l.layer}${l.cross ? ', cross' : ''}`]),
        ...(alike ? [['all', 'all, same input']] : [])], 0);
    const { examples } = await getJSON(`${modelPath()}/examples`);
    const inputs = [...examples.map((x) => [x, x]),
        ...GENERATED.map((n) => [`generated-${n}`, `generated, ${n} tokens`])];
    refill($('example'), [...inputs, ['own', 'own data']], '');
    const [wanted] = inputs.find(([x]) => x === link.ex) ?? inputs[0];
    const layer = (link.layer === 'all' && alike) || layers[Number(link.layer)] ? link.layer : null;
    await chooseExample(wanted, layer, Number(link.b0) || 0);
}

async function chooseExample(name, layer = null, batch = 0) {
    page.example = name;
    $('example').value = name;
    if (name === 'own') {
        if (!page.request) $('own-dialog').showModal();
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

const routeOf = () => (page.request.query ? 'v1/scaled-dot-product-attention' : `${modelPath()}/attention`);

async function ask(layer, wanted) {
    const extra = { return_outputs: false, return_attentions: wanted };
    if (!page.request.query) extra.layer = layer;
    const answer = await post(routeOf(), bodyOf(page.one, extra), page.running.signal);
    if (!answer.attentions) throw new Error('the answer holds no attentions');
    return { shape: answer.attentions.shape.slice(-3), values: numbers(answer.attentions) };
}

async function load() {
    page.running?.abort();
    page.running = new AbortController();
    const { one, model, layer, request, example } = page, all = layer === 'all';
    const layers = all ? model.layers.map((l) => l.layer) : [layer];
    const heads = one.tensors.query?.shape.at(-3) ?? layerInfo().num_heads;
    map.showError('');
    say('Asking for the map…');
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
    map.setState(map.getState());
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
    const { head, queries, keys } = detail, { data } = map;
    const { values } = await ask(page.layer, { heads: [head], queries, keys });
    if (map.data === data) map.refine({ head, queries, keys, values });
}));

/* --- own data ------------------------------------------------------------------------------------- */

async function showOwn({ request, map: data }, name) {
    page.example = 'own';
    if (data) {
        page.running?.abort();
        Object.assign(page, { request: null, one: null, batch: 0 });
        map.showError('');
        map.data = { title: name, ...data };
        $('sequence-label').hidden = true;
    } else {
        await chooseRequest(request, request.layer ?? (page.layer === 'all' ? 0 : page.layer));
    }
    $('example').value = 'own';
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
    const { request, layer, example, batch } = page, shown = request !== null;
    $('snippet').textContent = 'This map came from a file, not from the server.';
    $('copy').disabled = $('save-request').disabled = !shown;
    for (const b of languages) b.setAttribute('aria-pressed', b.dataset.language === language);
    if (!$('code-dialog').open) $('code-dialog').showModal();
    if (!shown) return;
    const stored = example !== 'own' && !example.startsWith('generated');
    const single = rankOf(request.inputs_embeds ?? request.query) === 2;
    $('snippet').textContent = snippets({
        root: address(''), route: routeOf(), example: stored ? examplePath(example) : null,
        layer: request.query ? null : layer === 'all' ? 0 : layer, head: map.getState().head,
        index: single ? '[0]' : `[${batch}][0]`, key: hasKey(),
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
    page.layer = e.target.value === 'all' ? 'all' : Number(e.target.value);
    if (page.example.startsWith('generated')) await chooseExample(page.example, page.layer);
    else if (page.one) await load();
}));
on('example', 'change', guard((e) => chooseExample(e.target.value)));
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
on('map', 'attention-statechange', writeLink);
addEventListener('hashchange', guard(async () => {
    const link = readLink(), { model, layer, ex, b0 } = link;
    if (page.model && model && model !== page.model.name) await start();
    else if (ex && ex !== page.example && ex !== 'own') await chooseExample(ex, layer, Number(b0) || 0);
}));
start();
