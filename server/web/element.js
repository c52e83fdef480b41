// element.js: <attention-map>, the class without side effects, which attention-map.js registers; and all in it
// that is made of elements: the bar above the map, heads as small pictures, the text with its weights, the
// legend below and the numbers beside.

import { COLOUR_MAPS, channels, colourOf, css, position, valueAt } from './colour.js';
import {
    checkData, clamp, count, exactRow, headName, inSlices, isMasked, largest, rowFacts, shortest, spoken, visible,
} from './data.js';
import { bdi, button, choose, h, text } from './dom.js';
import { CANVAS_VIEWS, pictureBlob, pictureSVG, updateLegend } from './draw.js';
import { ALL, Pointers, hoverCell, hovered, onKey, select } from './input.js';
import { Model, ORDERS, SCALES, VIEWS, extremes, initial, sane } from './model.js';
import { copyCell, copyRow, report, save, toNPY, toTSV } from './save.js';
import { STYLE, THEME, sheet } from './style.js';

/* --- the bar ---------------------------------------------------------------------------------- */

/** A button whose menu opens below it; only one is open. */
function menu(title, ...content) {
    const ontoggle = ({ target }) => {
        if (target.open) closeMenus(target.getRootNode(), (x) => x === target);
    };
    const onkeydown = ({ key, currentTarget }) => {
        if (key !== 'Escape') return;
        currentTarget.open = false;
        currentTarget.firstChild.focus();
    };
    return h('details', { ontoggle, onkeydown }, h('summary', { textContent: title }),
        h('div', { className: 'menu' }, ...content));
}

function closeMenus(root, but) {
    for (const x of root.querySelectorAll('details[open]')) if (!but(x)) x.open = false;
}

function viewTabs({ ui, host }) {
    const to = (view) => host.setState({ view });
    const name = (view) => view[0].toUpperCase() + view.slice(1);
    ui.tabs = Object.fromEntries(VIEWS.map((view) =>
        [view, button(name(view), () => to(view), { role: 'tab' })]));
    const onkeydown = (e) => {
        const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
        if (!by) return;
        const view = VIEWS.at((VIEWS.indexOf(host.getState().view) + by) % VIEWS.length);
        to(view);
        ui.tabs[view].focus();
    };
    return h('div', { className: 'tabs', part: 'tabs', role: 'tablist', 'aria-label': 'View', onkeydown },
        ...Object.values(ui.tabs));
}

/** The bar; the controls that change are kept in m.ui under the names of the state's fields. */
function toolbar(m) {
    const { ui, host } = m, set = (name, read) => (e) => host.setState({ [name]: read(e.target) });
    const value = (t) => t.value;
    const pick = (label, name, options, read = value, given = {}) => {
        const made = choose(label, set(name, read), options, given);
        ui[name] = made.lastChild;
        return made;
    };
    const input = (label, name, given, read = value) => {
        ui[name] = h('input', { oninput: set(name, read), ...given });
        return h('label', {}, label, ui[name]);
    };
    const number = (label, name, given) => input(label, name,
        { type: 'number', min: 0, step: 'any', placeholder: 'all', ...given }, (t) => Number(t.value) || 0);
    const check = (label, name) => input(label, name, { type: 'checkbox' }, (t) => t.checked);
    const row = (...content) => h('div', {}, ...content);
    const file = (name, ending, make) => button(name, () => save(m, make, ending));
    const same = (list) => list.map((x) => [x, x]);
    const unfiltered = { threshold: 0, topK: 0, topP: 0, hide: '', renormalise: false };

    const filter = menu('Filter',
        number('At least', 'threshold', { max: 1, placeholder: 'any' }),
        number('Top k of a row', 'topK', { step: 1 }),
        number('Top p of a row', 'topP', { max: 1 }),
        input('Hide keys', 'hide', { type: 'text', placeholder: '[CLS], or /^\\W/' }),
        check('Renormalise what is left', 'renormalise'),
        check('Hatch masked cells', 'mask'),
        pick('Pooling of far views', 'pool', same(['max', 'mean'])),
        text('Filters change what is drawn, never the numbers in the panel.'),
        button('Clear filters', () => host.setState(unfiltered)));
    ui.filter = filter.firstChild;
    const files = menu('Export',
        row(...[1, 2, 4].map((scale) => file(`PNG ${scale}×`, 'png', () => host.toBlob({ scale })))),
        file('PNG, one pixel a cell', 'png', () => host.toBlob({ exact: true })),
        file('SVG', 'svg', () => host.toSVG()),
        file('TSV of this head', 'tsv', () => host.toTSV()),
        row(file('NPY, this head', 'npy', () => host.toNPY({ head: true })),
            file('NPY, all heads', 'npy', () => host.toNPY())),
        file('HTML report, one file', 'html', () => host.toHTML()),
        row(button('Copy cell', (e) => copyCell(m, e.target)),
            button('Copy row', (e) => copyRow(m, e.target))));
    const head = (t) => (t.value === 'mean' || t.value === 'max' ? t.value : Number(t.value));
    const shows = [['side', 'A | B'], ['difference', 'A − B']];
    ui.only = { // what is there in one view only
        grid: pick('Order by', 'sort', Object.entries(ORDERS)),
        tokens: pick('Direction', 'direction', [['from', 'attends to'], ['to', 'attended by']]),
        arcs: pick('Lines of', 'lines', [['row', 'chosen query'], ['all', 'all in sight']]),
        compare: h('span', { className: 'bar' }, pick('A', 'head', [], head), pick('B', 'other', [], head),
            pick('', 'compare', shows, value, { 'aria-label': 'Show' })),
    };
    return h('div', { className: 'bar', part: 'toolbar' }, viewTabs(m), ...Object.values(ui.only),
        h('span', { className: 'grow' }), pick('Scale', 'scale', Object.entries(SCALES)),
        pick('Colours', 'colormap', same(COLOUR_MAPS)), filter, files,
        button('?', () => ui.help.showModal(), { 'aria-label': 'Help' }));
}

const KEYS = {
    '← ↑ → ↓': 'next cell',
    'Home, End': 'first, last key of the row',
    'PgUp, PgDn': 'ten queries up, down',
    'Ctrl Home, Ctrl End': 'first, last query',
    '[ and ]': 'head before, after',
    '{ and }': 'the same head a layer before, after',
    Enter: 'pin the query, or let it go',
    '+ - 0': 'zoom in, out, all of it',
    '1 to 5': 'Grid, Matrix, Tokens, Arcs, Compare',
    '?': 'this help',
};
const MOUSE = 'Keys work while the map has the focus. ' +
    'Wheel or pinch zooms, dragging moves, shift and dragging zooms into a box; ' +
    'a click on a head chooses it, with shift it joins the selection, a double click shows it alone.';
const HONEST = 'The weights show what was mixed into a token at this layer, not why, ' +
    'and not what the model as a whole relied on.';

function helpDialog() {
    const keys = Object.entries(KEYS).flatMap(([key, what]) =>
        [h('dt', {}, text(key, 'kbd')), text(what, 'dd')]);
    const help = h('dialog', { 'aria-label': 'Help' }, text('Keys', 'h2'), h('dl', {}, ...keys),
        text(MOUSE), text(HONEST), button('Close', () => help.close()));
    return help;
}

function updateControls({ ui, state, data, host, empty }) {
    for (const view of VIEWS) {
        const here = view === state.view;
        ui.tabs[view].setAttribute('aria-selected', here);
        ui.tabs[view].tabIndex = here ? 0 : -1;
        if (ui.only[view]) ui.only[view].hidden = !here || empty;
    }
    for (const name of ['scale', 'colormap', 'sort', 'direction', 'lines', 'compare']) {
        ui[name].value = state[name];
    }
    const filters = ['threshold', 'topK', 'topP', 'hide'];
    for (const name of filters) { // but not what is being typed
        if (host.shadowRoot.activeElement !== ui[name]) ui[name].value = state[name] || '';
    }
    ui.renormalise.checked = state.renormalise;
    ui.mask.checked = state.mask;
    ui.pool.value = data?.pooled ?? state.pool;
    ui.pool.disabled = Boolean(data?.pooled);
    const active = filters.filter((name) => state[name]).length;
    if (active) ui.filter.dataset.count = active;
    else delete ui.filter.dataset.count;
}

/* --- heads ------------------------------------------------------------------------------------ */

/** Paints at one pixel a cell; the style sheet makes it larger. */
function paint(m, canvas, head) {
    const t = m.thumb(head);
    if (!t) return;
    let { limits } = m.limits({ data: m.data }, null, false);
    if (['head', 'row', 'visible'].includes(m.state.scale)) {
        const own = extremes(t);
        limits = { low: Math.min(0, own.low), high: own.high || 1 };
    }
    const lut = m.lut(), image = new ImageData(t.cols, t.rows), out = new Uint32Array(image.data.buffer);
    t.values.forEach((v, k) => { if (v - v === 0) out[k] = colourOf(v, limits, lut); });
    Object.assign(canvas, { width: t.cols, height: t.rows }).getContext('2d').putImageData(image, 0, 0);
}

function headButton(m, head) {
    const canvas = h('canvas', { width: 1, height: 1, 'aria-hidden': 'true' }), label = h('span');
    const onclick = (e) => {
        if (!e.shiftKey || typeof head !== 'number') {
            m.set({ head }, true);
            return;
        }
        const picked = new Set(m.state.selection);
        if (!picked.delete(head)) picked.add(head);
        m.set({ selection: [...picked].sort((a, b) => a - b) });
    };
    const ondblclick = () => m.set({ head, selection: [], view: 'matrix', zoom: ALL });
    const onpointerenter = (e) => {
        if (e.pointerType === 'touch') return;
        m.hoverHead = head;
        hovered(m);
    };
    const onpointerleave = () => {
        m.hoverHead = null;
        m.refresh();
    };
    const on = { onclick, ondblclick, onpointerenter, onpointerleave };
    const title = headName(m.data, head);
    return Object.assign(h('button', { type: 'button', className: 'head', title, ...on }, canvas, label),
        { canvas, label, head });
}

/** Buttons for heads; name(head) is a text of one or two lines. `layered`: each layer is a row with its name. */
function fill(m, node, heads, name, layered = false) {
    const { head, selection, scale, colormap, hide, renormalise } = m.state, filled = `${layered} ${heads}`;
    if (node.filled !== filled || node.of !== m.data) {
        const buttons = heads.map((x) => headButton(m, x)), per = heads.length / m.data.layers;
        const named = (k) => [text(`layer ${k}`, 'span'), ...buttons.slice(k * per, (k + 1) * per)];
        node.replaceChildren(...(layered ? [h('span'), ...count(per).map((k) => text(`head ${k}`, 'span')),
            ...count(m.data.layers).flatMap(named)] : buttons));
        Object.assign(node, { filled, buttons, of: m.data, ready: '' });
    }
    const ready = JSON.stringify([head, selection, scale, colormap, hide, renormalise, m.ink, m.thumbsMade]);
    if (node.ready === ready) return;
    node.ready = ready;
    for (const b of node.buttons) {
        b.setAttribute('aria-pressed', b.head === head);
        b.classList.toggle('chosen', selection.includes(b.head));
        const [first, second] = name(b.head).split('\n');
        b.label.replaceChildren(first, ...(second ? [h('br'), text(second, 'small')] : []));
    }
    if (node.shows !== head) { // into sight, without moving the page
        const box = node === m.ui.grid ? m.ui.scroll : node, outer = box.getBoundingClientRect();
        const b = node.buttons.find((x) => x.head === head)?.getBoundingClientRect() ?? outer;
        box.scrollBy(Math.min(0, b.left - outer.left) + Math.max(0, b.right - outer.right),
            Math.min(0, b.top - outer.top) + Math.max(0, b.bottom - outer.bottom));
        node.shows = head;
    }
    const sum = (b) => typeof b.head === 'string'; // these want all others first
    const todo = [...node.buttons].sort((a, b) => sum(a) - sum(b));
    function* pictures() {
        for (const b of todo) {
            paint(m, b.canvas, b.head);
            yield;
        }
    }
    node.stop?.();
    node.stop = inSlices(pictures(), () => {}, () => {});
}

function updateStrip(m) {
    const d = m.data, sum = `of ${m.state.selection.length || 'all'}`;
    const number = (x) => (d.layers > 1 ? headName(d, x, true) : String(x));
    fill(m, m.ui.heads, ['mean', 'max', ...count(d.heads)], (x) =>
        (typeof x === 'string' ? `${x}\n${sum}` : number(x)));
}

const NOTES = {
    entropy: (f) => `\n${f.entropy.toFixed(2)} bits`,
    first: (f) => `\n${f.first.toFixed(3)} to the first`,
    diagonal: (f) => `\n${f.diagonal.toFixed(3)} near the diagonal`,
};

function grid(m) {
    const { sort } = m.state, d = m.data, { ui } = m, heads = count(d.heads), per = d.heads / d.layers;
    if (sort !== 'index') {
        const order = (x) => (sort === 'entropy' ? 1 : -1) * m.facts(x)[sort];
        heads.sort((a, b) => order(a) - order(b) || a - b);
    }
    const layered = d.layers > 1 && sort === 'index' && per <= 16; // a row for each layer
    ui.grid.style.gridTemplateColumns = layered ? `max-content repeat(${per}, minmax(50px, 150px))` : '';
    ui.grid.classList.toggle('few', d.heads <= 12);
    fill(m, ui.grid, heads, (x) => (layered ? '' : headName(d, x) + (NOTES[sort]?.(m.facts(x)) ?? '')),
        layered);
    paint(m, ui.side.preview, m.head);
    const made = m.levels(m.head);
    return { made, ...m.limits(made) };
}

/* --- tokens ----------------------------------------------------------------------------------- */

const MOST_TOKENS = 3000;

function tokensNode(m) {
    // The cell that a token stands for beside the query or key that is chosen.
    const cellOf = (e, other) => {
        const at = e.target.closest?.('span[data-index]');
        if (!at) return null;
        const { query, key, direction } = m.state, { side } = at.dataset, k = Number(at.dataset.index);
        const asQuery = side === 'query' || (side === 'both' && (direction === 'from') !== other);
        return asQuery ? { query: k, key } : { query, key: k };
    };
    const onclick = (e) => {
        const cell = cellOf(e, false);
        if (cell) select(m, cell, true);
    };
    // A query that is locked stays, and the pointer shows its weight on what is under it.
    const onpointermove = (e) => {
        if (e.pointerType !== 'touch') hoverCell(m, cellOf(e, m.state.locked));
    };
    const onpointerleave = () => hoverCell(m, null);
    return h('div', { className: 'tokens', onclick, onpointermove, onpointerleave });
}

function fillTokens(m, node) {
    const d = m.data, same = d.queries === d.keys && String(d.queryTokens) === String(d.keyTokens);
    const run = (tokens, n, side) => count(Math.min(n, MOST_TOKENS)).flatMap((k) => {
        const span = text(visible(tokens ? tokens[k] : k, 60), 'span', { dir: 'auto' });
        Object.assign(span.dataset, { side, index: k });
        return d.breaks.includes(k) ? [h('hr'), span] : [span];
    });
    const apart = () => [text('queries', 'h3'), ...run(d.queryTokens, d.queries, 'query'),
        text('keys', 'h3'), ...run(d.keyTokens, d.keys, 'key')];
    node.replaceChildren(...(same ? run(d.keyTokens, d.keys, 'both') : apart()));
    node.of = d;
}

/** Black or white, whichever reads better on a colour. */
function onto(colour) {
    const [r, g, b] = channels(colour).map((v) => (v / 255) ** 2.2);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? '#000' : '#fff';
}

function tokens(m) {
    const d = m.data, { ui, head, cell } = m, { direction, mask } = m.state, from = direction === 'from';
    const made = m.levels(head), drawn = { made, ...m.limits(made) }, lut = m.lut('ramp');
    if (ui.tokens.of !== d) fillTokens(m, ui.tokens);
    for (const node of ui.tokens.querySelectorAll('span')) {
        const k = Number(node.dataset.index), { side } = node.dataset;
        const at = from ? { query: cell.query, key: k } : { query: k, key: cell.key };
        const weighed = side === 'both' || side === (from ? 'key' : 'query');
        const masked = weighed && mask && isMasked(d, head, at.query, at.key);
        let v = NaN;
        if (weighed && made.values && !masked) {
            v = d.pooled ? m.value(head, at).value : made.values[at.query * d.keys + at.key];
        }
        const colour = v - v === 0 ? css(colourOf(v, drawn.limits, lut)) : '';
        node.classList.toggle('query', side !== 'key' && k === cell.query);
        node.classList.toggle('key', side !== 'query' && k === cell.key);
        node.classList.toggle('masked', masked);
        node.style.backgroundColor = colour;
        node.style.color = colour && onto(colour);
        node.title = colour && shortest(v);
    }
    const n = Math.max(d.queries, d.keys);
    const cut = n > MOST_TOKENS ? `The first ${MOST_TOKENS} of ${n} tokens. ` : '';
    const what = from ? 'What the outlined query attends to.' : 'Which queries attend to the underlined key.';
    return { ...drawn, kind: 'ramp', notes: [cut + what] };
}

/* --- the legend ------------------------------------------------------------------------------- */

const short = (v) => (v === 0 || (Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5) ? String(Number(v.toPrecision(3)))
    : v.toExponential(1));

class Legend {
    constructor(owner) {
        this.owner = owner;
        this.bar = h('canvas', { width: 256, height: 1, 'aria-hidden': 'true' });
        this.handles = { low: this.#handle('low', 'Lower'), high: this.#handle('high', 'Upper') };
        this.numbers = count(5).map(() => h('output'));
        this.reset = button('Reset limits', () => owner.setState({ low: null, high: null }));
        this.words = h('span', { part: 'legend-text' });
        this.colours = h('div', { className: 'colours' }, this.bar, ...this.numbers,
            ...Object.values(this.handles));
        this.node = h('div', { className: 'legend', part: 'legend' }, this.colours, this.words, this.reset);
    }

    #handle(name, label) {
        const to = (t) => {
            const moved = { [name]: Number(valueAt(clamp(t, 0, 1), this.full).toPrecision(4)) };
            const limits = { ...this.limits, ...moved };
            if (limits.low >= limits.high) return;
            this.limits = limits;
            this.owner.setState(moved);
        };
        const onpointermove = (e) => {
            if (!node.hasPointerCapture(e.pointerId)) return;
            const box = this.bar.getBoundingClientRect();
            to((e.clientX - box.left) / box.width);
        };
        const onkeydown = (e) => {
            const by = { ArrowRight: 0.02, ArrowUp: 0.02, ArrowLeft: -0.02, ArrowDown: -0.02, PageUp: 0.1,
                PageDown: -0.1 }[e.key];
            if (!by) return;
            e.preventDefault();
            to(position(this.limits[name], this.full) + by);
        };
        const onpointerdown = (e) => node.setPointerCapture(e.pointerId);
        const node = h('button', { type: 'button', className: 'handle', role: 'slider',
            'aria-label': `${label} colour limit`, onpointerdown, onpointermove, onkeydown });
        return node;
    }

    /** full: the limits of the scale; limits: those in force, within it; words: what the colours mean. */
    update(full, limits, lut, words, movable) {
        const said = words.map((x) => x.textContent ?? x).join(''), wide = this.colours.clientWidth || 320;
        if (said !== this.said) this.words.replaceChildren(...words);
        const key = JSON.stringify([full, limits, lut[0], lut[128], lut[255], movable, wide]);
        Object.assign(this, { full, limits, said });
        if (key === this.key) return;
        this.key = key;
        const g = this.bar.getContext('2d');
        for (const k of count(256)) {
            g.fillStyle = css(lut[Math.round(position(valueAt(k / 255, full), limits) * 255)]);
            g.fillRect(k, 0, 1, 1);
        }
        this.numbers.forEach((node, k) => {
            node.textContent = short(valueAt(k / 4, full));
            node.style.left = `${(k / 4) * wide}px`;
        });
        for (const [name, node] of Object.entries(this.handles)) {
            const now = limits[name];
            node.hidden = !movable;
            node.style.left = `${position(now, full) * wide}px`;
            const spoken = { min: full.low, max: full.high, now, text: short(now) };
            for (const [part, v] of Object.entries(spoken)) node.setAttribute(`aria-value${part}`, v);
        }
        this.reset.hidden = !movable || (limits.low === full.low && limits.high === full.high);
    }
}

/* --- the numbers ------------------------------------------------------------------------------ */

const MORE = 10;

/** query 3 'sat' → key 1 'cat' */
function place(d, { query, key }) {
    const part = (word, k, tokens) =>
        (tokens ? [`${word} ${k} '`, bdi(spoken(tokens[k])), "'"] : [`${word} ${k}`]);
    return [...part('query', query, d.queryTokens), ' → ', ...part('key', key, d.keyTokens)];
}

class Side {
    constructor(owner) {
        this.owner = owner;
        this.rows = MORE;
        this.title = h('h2');
        this.where = h('div', { className: 'where' });
        this.value = h('div', { className: 'value', part: 'value' });
        this.note = h('p', { className: 'note' });
        this.facts = h('dl');
        const columns = ['rank', 'key', 'weight'].map((name) => text(name, 'th', { scope: 'col' }));
        const head = h('thead', {}, h('tr', {}, ...columns));
        this.body = h('tbody');
        this.table = h('table', { part: 'table' }, h('caption'), head, this.body);
        this.more = button('More of the row', () => {
            this.rows += 40;
            owner.refresh();
        });
        this.preview = h('canvas', { className: 'preview', hidden: true, 'aria-hidden': 'true' });
        this.node = h('aside', { className: 'side', part: 'readout', 'aria-label': 'Values', tabIndex: 0 },
            this.title, this.preview, this.where, this.value, this.note, this.facts, this.table, this.more);
    }

    /** at: {head, query, key}; row: the exact row or null; cell: {value, exact}; more: further facts. */
    update(d, at, row, { value, exact }, masked, more) {
        const named = (k, tokens, max) => [`${k} `, ...(tokens ? [bdi(visible(tokens[k], max))] : [])];
        this.title.textContent = [headName(d, at.head), d.title].filter(Boolean).join(' · ');
        this.where.replaceChildren(...place(d, at));
        this.value.textContent = `${exact ? '' : '≤ '}${shortest(value)}`;
        const pooled = `the ${d.pooled} of its ${d.bq}×${d.bk} cells; the exact value is on its way`;
        this.note.textContent = masked ? 'masked: this query may not see this key' : exact ? '' : pooled;
        this.note.hidden = exact && !masked;
        this.facts.replaceChildren();
        this.table.hidden = this.more.hidden = row === null;
        if (row === null) return;
        const { rank, sum, entropy, best } = rowFacts(row, at.key), top = largest(row, this.rows);
        const facts = [...more, ['rank in row', `${rank} of ${row.length}`],
            ['row sum', shortest(Math.fround(sum))]];
        if (d.stage === 'probabilities') facts.push(['row entropy', `${entropy.toFixed(3)} bits`]);
        facts.push(['largest', 'key ', ...named(best, d.keyTokens)]);
        for (const [name, ...what] of facts) this.facts.append(text(name, 'dt'), h('dd', {}, ...what));
        this.table.caption.replaceChildren('row of query ', ...named(at.query, d.queryTokens),
            `, top ${top.length} of ${row.length}`);
        this.more.hidden = top.length < this.rows || top.length >= row.length;
        this.body.replaceChildren(...top.map((key, k) => {
            const onclick = () => this.owner.setState({ key, query: at.query, locked: true });
            const tr = h('tr', { onclick }, text(k + 1, 'td'),
                h('th', { scope: 'row' }, ...named(key, d.keyTokens, 16)), text(shortest(row[key]), 'td'));
            if (key === at.key) tr.setAttribute('aria-current', 'true');
            return tr;
        }));
    }
}

/* --- the element -------------------------------------------------------------------------------- */

const DRAW = { ...CANVAS_VIEWS, grid, tokens };
// Attributes that follow the state, and its fields.
const REFLECTED = { view: 'view', scale: 'scale', threshold: 'threshold', colormap: 'colormap', heads: 'head' };
const LOOKS = ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(prefers-contrast: more)'];
// In an order in which each finds what it imports; bundles are made by it.
const MODULES = ['colour', 'data', 'dom', 'style', 'model', 'draw', 'input', 'save', 'element'];

export class AttentionMap extends HTMLElement {
    static observedAttributes = [...Object.keys(REFLECTED), 'src', 'mask', 'theme'];
    static base = null; // where our modules lie; attention-map.js sets it
    static modules = null; // their sources, in a bundle

    static define(tag = 'attention-map', registry = customElements) {
        if (!registry.get(tag)) registry.define(tag, this);
        return registry.get(tag);
    }

    /** The modules' sources, for pages and packages that need them in one piece. */
    static async sources() {
        if (this.modules) return this.modules;
        return Promise.all(MODULES.map(async (name) => {
            const reply = await fetch(new URL(`${name}.js`, this.base));
            if (!reply.ok) throw new Error(`${name}.js: the server answered ${reply.status}`);
            return [name, await reply.text()];
        }));
    }

    #map = new Model(this, () => this.refresh(), (change, speak) => this.#changed(change, speak));
    #frame = 0;
    #quiet = false; // attributes are being written by us
    #needed = '';
    #resized = new ResizeObserver(() => this.refresh());

    constructor() {
        super();
        const root = this.attachShadow({ mode: 'open' });
        root.adoptedStyleSheets = [sheet(THEME + STYLE)];
        this.#build(root);
    }

    connectedCallback() {
        this.#resized.observe(this.#map.ui.stage);
        for (const query of LOOKS) matchMedia(query).onchange = () => this.#map.restyle();
        this.refresh();
    }

    disconnectedCallback() { this.#resized.disconnect(); }

    attributeChangedCallback(name, before, value) {
        if (this.#quiet || before === value) return;
        if (name === 'src') {
            if (value) this.#load(value);
        } else if (name === 'theme') this.#map.restyle();
        else if (name === 'mask') this.setState({ mask: value !== 'none' });
        else if (value !== null && name === 'heads') {
            const [head, ...more] = value.split(/[,\s]+/);
            this.setState({ head, selection: more.length ? [head, ...more] : [] });
        } else this.setState({ [REFLECTED[name]]: value ?? initial()[REFLECTED[name]] });
    }

    async #load(url) {
        try {
            const reply = await fetch(url);
            if (!reply.ok) throw new Error(`${url}: the server answered ${reply.status}`);
            this.data = await reply.json();
        } catch (e) {
            this.showError(e.message);
        }
    }

    /* --- what pages use ----------------------------------------------------------------------- */

    get data() { return this.#map.given; }
    set data(given) {
        this.#map.failure = '';
        try {
            this.#map.show(given, given ? checkData(given) : null);
        } catch (e) {
            this.showError(e.message);
            throw e;
        }
        this.#needed = '';
        this.refresh();
    }

    /** A second map for Compare: the same form as `data`. */
    get other() { return this.#map.other?.given ?? null; }
    set other(given) {
        this.#map.compareWith(given, given ? checkData(given) : null);
        this.refresh();
    }

    getState() { return structuredClone(this.#map.state); }
    setState(change) { this.#map.set(sane(change)); }

    /** Words where the map would be; '' takes them away. */
    showError(text) {
        this.#map.failure = text;
        this.refresh();
    }

    /** Exact values for a part of a pooled map: {head, queries: [from, to], keys: [from, to], values}. */
    refine(part) {
        this.#map.addTile(part);
        this.refresh();
        if (this.#map.ui.live.textContent.includes('≤')) this.#speak();
    }

    /** Draws again soon, whatever changed. */
    refresh() {
        this.#frame ||= requestAnimationFrame(() => {
            this.#frame = 0;
            if (this.isConnected) this.#render();
        });
    }

    /** A picture: of the view at 1, 2 or 4 times its size, or {exact: true}: one pixel a cell. */
    toBlob(options = {}) { return pictureBlob(this.#map, options); }
    toSVG() { return pictureSVG(this.#map); }
    async toHTML() { return report(this.#map, await AttentionMap.sources()); }

    toTSV() {
        const m = this.#map;
        return toTSV(m.data, m.raw(m.state.head));
    }

    /**
     * All heads, [heads, queries, keys] or [layers, heads, queries, keys]; {head: true}: the one that is
     * chosen, [queries, keys].
     */
    toNPY({ head = false } = {}) {
        const m = this.#map, { heads, layers, rows, cols, values } = m.data;
        if (head) return toNPY(m.raw(m.state.head), [rows, cols]);
        return toNPY(values, [...(layers > 1 ? [layers] : []), heads / layers, rows, cols]);
    }

    /* --- inside ------------------------------------------------------------------------------- */

    #changed(change, speak) {
        this.#reflect(change);
        if (speak) this.#speak();
        this.#map.emit('attention-statechange', this.getState());
    }

    /** Only what changed: the others may be attributes that the parser has not told us of yet. */
    #reflect(change) {
        const { state } = this.#map;
        this.#quiet = true;
        for (const [name, field] of Object.entries(REFLECTED)) {
            if (!(field in change) && !(name === 'heads' && 'selection' in change)) continue;
            const value = name === 'heads' && state.selection.length ? state.selection.join(',')
                : String(state[field]);
            if (this.getAttribute(name) !== value) this.setAttribute(name, value);
        }
        this.#quiet = false;
    }

    #build(root) {
        const m = this.#map, { ui } = m, canvas = () => h('canvas', { 'aria-hidden': 'true' });
        const part = (name, given = {}) => h('div', { className: name, part: name, ...given });
        const keys = 'Arrow keys move between cells, question mark lists all keys.';
        const heads = { role: 'group', 'aria-label': 'Heads' };
        const bar = toolbar(m);
        ui.help = helpDialog();
        ui.message = part('message', { role: 'alert', hidden: true });
        ui.heads = part('heads', heads);
        ui.panes = ['a', 'b'].map((name) => {
            const pane = { name: h('span'), map: canvas(), over: canvas() };
            pane.node = h('div', { className: `pane ${name}` }, pane.map, pane.over, pane.name);
            new Pointers(m, pane);
            return pane;
        });
        ui.grid = h('div', { className: 'grid', ...heads });
        ui.tokens = tokensNode(m);
        ui.scroll = h('div', { className: 'scroll' }, ui.grid, ui.tokens);
        ui.stage = part('stage', { role: 'application', tabIndex: 0, 'aria-roledescription': 'attention map',
            'aria-describedby': 'keys' });
        ui.stage.append(...ui.panes.map((p) => p.node), ui.scroll);
        ui.legend = new Legend(this);
        ui.side = new Side(this);
        const left = h('div', { className: 'left' }, ui.stage, ui.legend.node);
        ui.body = h('div', { className: 'body' }, left, ui.side.node);
        ui.none = h('div', { className: 'none' });
        ui.live = h('div', { className: 'spoken', part: 'live', 'aria-live': 'polite' });
        ui.probe = h('i', { hidden: true });
        ui.measure = canvas().getContext('2d');
        root.append(bar, ui.message, ui.heads, ui.body, ui.none, ui.live,
            text(keys, 'p', { id: 'keys', hidden: true }), ui.probe, ui.help);
        root.addEventListener('keydown', (e) => onKey(m, e));
        document.addEventListener('pointerdown', (e) =>
            closeMenus(root, (menu) => e.composedPath().includes(menu)));
    }

    #render() {
        const m = this.#map, { ui, state, data: d, failure, empty } = m, { view } = state;
        ui.message.hidden = !failure;
        ui.message.textContent = failure;
        updateControls(m);
        Object.assign(ui.stage.dataset, { view, compare: view === 'compare' ? state.compare : '' });
        ui.none.hidden = !empty;
        ui.body.hidden = empty;
        const sizes = d && `${d.heads} heads, ${d.queries} queries, ${d.keys} keys`;
        ui.none.textContent = d ? `This map has no cells: ${sizes}.` : failure ? '' : 'No map yet.';
        ui.heads.hidden = empty || view === 'grid' || d.heads < 2;
        if (empty) return;
        ui.stage.setAttribute('aria-label',
            `Attention map, ${d.queries} queries by ${d.keys} keys, ${headName(d, state.head)}`);
        ui.grid.hidden = view !== 'grid';
        ui.tokens.hidden = view !== 'tokens';
        ui.scroll.hidden = ui.grid.hidden && ui.tokens.hidden;
        ui.panes[0].node.hidden = !ui.scroll.hidden;
        ui.panes[1].node.hidden = view !== 'compare' || state.compare === 'difference';
        ui.side.preview.hidden = view !== 'grid';
        if (!ui.heads.hidden) updateStrip(m);
        const drawn = DRAW[view](m);
        updateLegend(m, drawn);
        this.#renderSide();
        this.#ask(drawn);
    }

    #renderSide() {
        const m = this.#map, { data: d, head, cell, ui: { side } } = m, { selection, view, other } = m.state;
        const key = JSON.stringify([head, cell, selection, view, other, d.tiles.length, side.rows]);
        if (side.key === key && side.of === d && side.with === m.other) return;
        Object.assign(side, { key, of: d, with: m.other });
        const value = m.value(head, cell), more = this.#versus(cell, value.value);
        side.update(d, { head, ...cell }, m.row(head, cell.query), value, m.masked(head, cell), more);
    }

    /** In Compare: what B says of the same cell. */
    #versus(cell, a) {
        const m = this.#map, o = m.otherData, { view, other } = m.state;
        if (view !== 'compare' || cell.query >= o.queries || cell.key >= o.keys) return [];
        const b = m.value(other, cell, o).value;
        return [['B', shortest(b)], ['A − B', shortest(Math.fround(a - b))]];
    }

    #speak() {
        const m = this.#map, { data: d } = m, { head, query, key } = m.state;
        if (m.empty) return;
        const row = m.row(head, query), { value, exact } = m.value(head, { query, key });
        const rank = row ? `rank ${rowFacts(row, key).rank}` : `${d.pooled} of ${d.bq}×${d.bk} cells`;
        const masked = m.masked(head, { query, key }) ? ', masked' : '';
        m.ui.live.replaceChildren(...place(d, { query, key }),
            `: ${exact ? '' : '≤ '}${shortest(value)}, ${rank}${masked}`);
    }

    /** Asks the page for exact values where only pooled ones are here. */
    #ask(drawn) {
        const m = this.#map, { data: d, head, cell: { query } } = m, lay = drawn?.layout;
        if (!d.pooled || typeof head !== 'number') return;
        let want = null;
        if (!exactRow(d, head, null, query)) want = { head, queries: [query, query + 1], keys: [0, d.keys] };
        if (lay && m.state.view === 'matrix' && lay.sx * d.bk > 3 && lay.seenX * lay.seenY <= 1 << 20) {
            const range = (from, seen, n, more) => [Math.max(0, Math.floor(from - more)),
                Math.min(n, Math.ceil(from + seen + more))];
            const seen = (more) => ({ queries: range(lay.y, lay.seenY, d.queries, more * lay.seenY),
                keys: range(lay.x, lay.seenX, d.keys, more * lay.seenX) });
            const { queries, keys } = seen(0), holds = ([a, z], [from, to]) => a <= from && z >= to;
            const has = (t) => t.head === head && holds(t.queries, queries) && holds(t.keys, keys);
            if (!d.tiles.some(has)) want = { head, ...seen(0.25) };
        }
        const key = JSON.stringify(want);
        if (!want || key === this.#needed) return;
        this.#needed = key;
        m.emit('attention-need', want);
    }
}
