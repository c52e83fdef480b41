// element.js: <attention-map>, the class without side effects. attention-map.js registers it.

import { checkData, exactRow, headName, rowFacts, shortest } from './data.js';
import { h, text } from './dom.js';
import { CANVAS_VIEWS, updateLegend } from './draw.js';
import { Pointers, onKey } from './input.js';
import { Model } from './model.js';
import {
    Legend, Side, closeMenus, grid, helpDialog, place, tokens, tokensNode, toolbar, updateControls, updateStrip,
} from './panel.js';
import { pictureBlob, pictureSVG, report, toNPY, toTSV } from './save.js';
import { initial, sane } from './state.js';
import { STYLE, THEME, sheet } from './style.js';

const DRAW = { ...CANVAS_VIEWS, grid, tokens };
// Attributes that follow the state, and its fields.
const REFLECTED = { view: 'view', scale: 'scale', threshold: 'threshold', colormap: 'colormap', heads: 'head' };
const LOOKS = ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(prefers-contrast: more)'];
// In an order in which each finds what it imports; bundles are made by it.
const MODULES = ['colour', 'data', 'dom', 'state', 'style', 'model', 'draw', 'input', 'save', 'panel',
    'element'];

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

    /** All heads [heads, queries, keys], or {head: true}: the one that is chosen, [queries, keys]. */
    toNPY({ head = false } = {}) {
        const m = this.#map, { heads, rows, cols, values } = m.data;
        return head ? toNPY(m.raw(m.state.head), [rows, cols]) : toNPY(values, [heads, rows, cols]);
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
