// element.js: <attention-map>, the class without side effects. attention-map.js registers it.

import { COLOUR_MAPS, channels, colourOf, css, packed, palette, table } from './colour.js';
import { cellValue, checkData, exactRow, blockMasked, headFacts, headName, headValues, hiddenKeys, inSlices, isMasked, pyramid, rowFacts, shortest, shown, thumbnail, visible } from './data.js';
import { choose, h, refill } from './dom.js';
import { toHTML, toNPY, toSVG, toTSV } from './export.js';
import { Legend } from './legend.js';
import { cellAt, drawCursor, drawPane, layout, minimapBox, paintCells, pickLevel } from './pane.js';
import { HUES, MOST_LINES, arcsHit, arcsLayout, arcsLines, drawArcs } from './arcs.js';
import { Side, place } from './side.js';
import { SCALES, VIEWS, initial, sane } from './state.js';
import { STYLE } from './style.js';

const NAMES = {
    grid: 'Grid', matrix: 'Matrix', tokens: 'Tokens', arcs: 'Arcs', compare: 'Compare',
    absolute: 'absolute 0–1', row: 'per row', head: 'per head', visible: 'visible range', log: 'logarithmic',
};
const REFLECTED = { view: 'view', scale: 'scale', threshold: 'threshold', colormap: 'colormap', heads: 'head' };
const KEYS = [
    ['← ↑ → ↓', 'next cell'], ['Home, End', 'first, last key of the row'], ['PgUp, PgDn', 'ten queries up, down'],
    ['Ctrl Home, Ctrl End', 'first, last query'], ['[ and ]', 'head before, after'], ['Enter', 'pin the query, or let it go'],
    ['+ - 0', 'zoom in, out, all of it'], ['1 to 5', 'Grid, Matrix, Tokens, Arcs, Compare'], ['?', 'this help'],
];
const MOST_TOKENS = 3000, LOG_FLOOR = 1e-4, MOST_TILES = 1 << 24;
const MODULES = ['colour', 'data', 'dom', 'state', 'pane', 'arcs', 'export', 'legend', 'side', 'style', 'element'];

/** The least and the largest finite value of a part of a matrix. */
function extremes(values, cols, r0, r1, c0, c1) {
    let low = Infinity, high = -Infinity;
    for (let r = r0; r < r1; r++) {
        for (let k = r * cols + c0; k < r * cols + c1; k++) {
            const v = values[k];
            if (v - v === 0) { if (v < low) low = v; if (v > high) high = v; }
        }
    }
    return low > high ? { low: 0, high: 1 } : { low, high };
}

const hue = (colour) => { const i = h('i', { className: 'hue' }); i.style.backgroundColor = colour; return i; };

export class AttentionMap extends HTMLElement {
    static observedAttributes = [...Object.keys(REFLECTED), 'src', 'mask', 'theme'];
    static base = null; // where our modules lie; attention-map.js sets it
    static modules = null; // their sources, in a bundle

    static define(tag = 'attention-map', registry = customElements) {
        if (!registry.get(tag)) registry.define(tag, this);
        return registry.get(tag);
    }

    #d = null;
    #given = null;
    #other = null;
    #state = initial();
    #hover = null; // {query, key} under the pointer
    #hoverHead = null;
    #made = new Map(); // values as shown and their pyramids, by what they were made of
    #sums = new Map(); // values of "mean" and "max"
    #thumbs = [];
    #facts = [];
    #frame = 0;
    #tables = new Map();
    #scroll = 0;
    #quiet = false; // attributes are being written by us
    #needed = '';
    #ui = {};
    #panes = [];
    #failure = '';

    constructor() {
        super();
        const root = this.attachShadow({ mode: 'open' }), sheet = new CSSStyleSheet();
        sheet.replaceSync(STYLE);
        root.adoptedStyleSheets = [sheet];
        this.#build(root);
    }

    connectedCallback() {
        this.#watch ??= new ResizeObserver(() => this.refresh());
        this.#watch.observe(this.#ui.stage);
        for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(prefers-contrast: more)']) {
            matchMedia(query).onchange = () => this.#restyle();
        }
        this.refresh();
    }
    #watch;

    disconnectedCallback() { this.#watch.disconnect(); }

    attributeChangedCallback(name, before, value) {
        if (this.#quiet || before === value) return;
        if (name === 'src') { if (value) this.#load(value); return; }
        if (name === 'theme') { this.#restyle(); return; }
        if (name === 'mask') { this.setState({ mask: value !== 'none' }); return; }
        if (value === null) { this.setState({ [REFLECTED[name]]: initial()[REFLECTED[name]] }); return; }
        if (name === 'heads') {
            const heads = value.split(/[,\s]+/).map(Number);
            this.setState(value === 'mean' || value === 'max' ? { head: value } : { head: heads[0], selection: heads.length > 1 ? heads : [] });
        } else {
            this.setState({ [REFLECTED[name]]: name === 'threshold' ? Number(value) : value });
        }
    }

    /* --- what pages use --------------------------------------------------------------------------- */

    get data() { return this.#given; }
    set data(given) {
        let d = null;
        this.#failure = '';
        try {
            d = given ? checkData(given) : null;
        } catch (e) {
            this.showError(e.message);
            throw e;
        }
        this.#given = given;
        this.#d = d;
        this.#forget();
        this.#hover = this.#hoverHead = null;
        this.#needed = '';
        if (d) { this.#adopt(); this.#makeThumbs(); }
        this.refresh();
    }

    /** A second map for Compare: the same form as `data`. */
    get other() { return this.#other?.given ?? null; }
    set other(given) {
        this.#other = given ? { given, d: checkData(given) } : null;
        this.#drop((key) => key.startsWith('other') || key.startsWith('difference'));
        this.refresh();
    }

    getState() { return structuredClone(this.#state); }
    setState(change) { this.#set(sane(change)); }

    /** Words where the map would be; '' takes them away. */
    showError(text) {
        this.#failure = text;
        this.refresh();
    }

    /** Exact values for a part of a pooled map: {head, queries: [from, to], keys: [from, to], values}. */
    refine({ head, queries, keys, values }) {
        const n = (queries[1] - queries[0]) * (keys[1] - keys[0]);
        if (values.length !== n) throw new RangeError(`values holds ${values.length} numbers, but queries and keys span ${n} cells`);
        const exact = values instanceof Float32Array ? values.slice() : Float32Array.from(values);
        for (let i = queries[0], k = 0; i < queries[1]; i++) {
            for (let j = keys[0]; j < keys[1]; j++, k++) if (exact[k] === 0 && isMasked(this.#d, head, i, j)) exact[k] = NaN;
        }
        const tiles = this.#d.tiles;
        tiles.push({ head, queries: [...queries], keys: [...keys], values: exact, bits: new Uint32Array(exact.buffer) });
        let held = 0;
        for (let k = tiles.length - 1; k >= 0; k--) {
            held += tiles[k].values.length;
            if (held > MOST_TILES || tiles.length - k > 64) { tiles.splice(0, k + 1); break; }
        }
        this.refresh();
        if (this.#ui.live.textContent.includes('≤')) this.#speak();
    }

    /** Draws again soon, whatever changed. */
    refresh() {
        this.#frame ||= requestAnimationFrame(() => { this.#frame = 0; this.#render(); });
    }

    /* --- state ------------------------------------------------------------------------------------ */

    #set(change, speak = false) {
        const before = JSON.stringify(this.#state);
        Object.assign(this.#state, change);
        if (this.#d) this.#adopt();
        if ('selection' in change) { this.#sums.clear(); this.#drop((key) => /"(mean|max)"/.test(key)); }
        if (JSON.stringify(this.#state) === before) return;
        this.#reflect(change);
        this.refresh();
        if (speak) this.#speak();
        this.dispatchEvent(new CustomEvent('attention-statechange', { bubbles: true, composed: true, detail: this.getState() }));
    }

    /** The state may come from a link to another map: keep it within this one. */
    #adopt() {
        const s = this.#state, d = this.#d, within = (v, n) => Math.max(0, Math.min(v, n - 1));
        if (typeof s.head === 'number') s.head = within(s.head, d.heads);
        if (typeof s.other === 'number') s.other = within(s.other, this.#other?.d.heads ?? d.heads);
        s.selection = s.selection.filter((x) => x < d.heads);
        s.query = within(s.query, d.queries);
        s.key = within(s.key, d.keys);
    }

    /** Only what changed: the others may be attributes that the parser has not told us of yet. */
    #reflect(change) {
        this.#quiet = true;
        for (const [name, field] of Object.entries(REFLECTED)) {
            if (!(field in change) && !(name === 'heads' && 'selection' in change)) continue;
            const value = name === 'heads' && this.#state.selection.length ? this.#state.selection.join(',') : String(this.#state[field]);
            if (this.getAttribute(name) !== value) this.setAttribute(name, value);
        }
        this.#quiet = false;
    }

    get #head() { return this.#hoverHead ?? this.#state.head; }
    get #cell() { return this.#hover ?? { query: this.#state.query, key: this.#state.key }; }
    get #empty() { return !this.#d || !this.#d.heads || !this.#d.queries || !this.#d.keys; }

    #forget() {
        this.#thumbsStop?.();
        this.#drop(() => true);
        this.#sums.clear();
        this.#thumbs = [];
        this.#facts = [];
    }

    #drop(which) {
        for (const [key, made] of this.#made) if (which(key)) { made.stop?.(); this.#made.delete(key); }
    }

    #raw(head, d = this.#d) {
        if (typeof head !== 'string') return headValues(d, head, []);
        const key = `${d === this.#d} ${head}`;
        if (!this.#sums.has(key)) this.#sums.set(key, headValues(d, head, d === this.#d ? this.#state.selection : []));
        return this.#sums.get(key);
    }

    #filter() {
        const s = this.#state;
        return { mask: s.mask, hidden: hiddenKeys(s.hide, this.#d), renormalise: s.renormalise, topK: s.topK, topP: s.topP, threshold: s.threshold, perRow: s.scale === 'row' };
    }

    /** {values, levels, done} of a head as shown, made in slices; drawing begins with the first level. */
    #levels(head, what = 'head') {
        const s = this.#state, d = what === 'other' ? this.#other?.d ?? this.#d : this.#d;
        const key = `${what} ${JSON.stringify([head, what === 'difference' ? s.other : 0, s.mask, s.hide, s.renormalise, s.topK, s.topP, s.threshold, s.scale === 'row', s.pool])}`;
        const found = this.#made.get(key);
        if (found) { this.#made.delete(key); this.#made.set(key, found); return found; }
        const kept = d.rows * d.cols > 1 << 20 ? 1 : 5;
        for (const old of [...this.#made.keys()].slice(0, -kept)) this.#drop((k) => k === old);
        const made = { levels: null, values: null, d, done: false };
        const self = this;
        const make = function* () {
            let values = self.#raw(head, d);
            if (what === 'difference') {
                const b = self.#raw(s.other, self.#other?.d ?? d), a = values;
                values = Float32Array.from(a, (v, k) => v - b[k]);
            }
            const f = self.#filter();
            if (what === 'difference') Object.assign(f, { hidden: null, topK: 0, topP: 0, threshold: 0, perRow: false });
            values = yield* shown(d, head, values, f);
            made.values = values;
            for (const levels of pyramid(values, d.rows, d.cols, d.bq, d.bk, d.pooled ?? s.pool)) { made.levels = levels; yield; }
        };
        made.stop = inSlices(make(), () => this.refresh(), () => { made.done = true; this.refresh(); });
        this.#made.set(key, made);
        return made;
    }

    /** A head's small picture, or null until #makeThumbs() has made it. */
    #thumb(head) {
        if (typeof head === 'number') return this.#thumbs[head] ?? null;
        const d = this.#d, chosen = this.#state.selection.length > 1 ? this.#state.selection : Array.from({ length: d.heads }, (_, k) => k), key = head + chosen;
        if (this.#thumbs[head]?.key !== key) {
            const all = chosen.map((k) => this.#thumbs[k]);
            if (all.includes(undefined)) return null;
            const values = all[0].values.map((_, k) => all.reduce((v, t) => (head === 'max' ? Math.max(v, t.values[k]) : v + t.values[k] / all.length), 0));
            this.#thumbs[head] = { ...all[0], values, key };
        }
        return this.#thumbs[head];
    }

    #makeThumbs() {
        const d = this.#d, self = this;
        this.#thumbsStop = inSlices((function* () {
            for (let k = 0; k < d.heads; k++) {
                self.#thumbs[k] = yield* thumbnail(d, headValues(d, k), 64, (...block) => blockMasked(d, k, ...block));
                yield;
            }
        })(), () => this.refresh(), () => this.refresh());
    }
    #thumbsStop = null;

    /* --- colours and scales ----------------------------------------------------------------------- */

    #ink() {
        const style = getComputedStyle(this), of = (name) => style.getPropertyValue(name).trim();
        const probe = this.#ui.probe, resolve = (name) => {
            probe.style.color = `var(${name})`;
            return getComputedStyle(probe).color;
        };
        if (this.#inkFor?.key !== style.color + style.backgroundColor + of('--line')) {
            const ink = { text: resolve('--ink'), ground: resolve('--bg'), muted: resolve('--muted'), line: resolve('--line'), accent: resolve('--act'), soft: resolve('--soft') };
            this.#inkFor = { key: style.color + style.backgroundColor + of('--line'), ink, font: style.fontFamily };
        }
        return this.#inkFor.ink;
    }
    #inkFor = null;

    #restyle() {
        this.#inkFor = null;
        this.#tables.clear();
        this.refresh();
    }

    #lut(kind) { return palette(kind || this.#state.colormap, this.#ink().ground, this.#ink().accent); }

    /** The scale's own limits and those in force. */
    #limits(made, lay, diverging) {
        const s = this.#state, d = made.d, likely = d.stage === 'probabilities' && d.low >= 0 && d.high <= 1.001;
        let full = likely ? { low: 0, high: 1 } : { low: d.low, high: d.high };
        if (diverging) {
            if (!made.most && made.done) { const e = extremes(made.values, d.cols, 0, d.rows, 0, d.cols); made.most = Math.max(-e.low, e.high) || 1; }
            full = { low: -(made.most ?? 1), high: made.most ?? 1 };
        } else if (s.scale === 'row') {
            full = { low: 0, high: 1 };
        } else if (s.scale === 'head') {
            const top = made.levels?.at(-1);
            if (likely && top) full = { low: 0, high: extremes(top.values, top.cols, 0, top.rows, 0, top.cols).high };
            else if (made.values) full = made.extremes ??= extremes(made.values, d.cols, 0, d.rows, 0, d.cols);
        } else if (s.scale === 'visible' && made.levels && lay) {
            const l = pickLevel(made.levels, lay.sx, lay.sy);
            full = extremes(l.values, l.cols, Math.floor(lay.y / l.bh), Math.min(l.rows, Math.ceil((lay.y + lay.seenY) / l.bh)),
                Math.floor(lay.x / l.bw), Math.min(l.cols, Math.ceil((lay.x + lay.seenX) / l.bw)));
        } else if (s.scale === 'log') {
            full = { low: likely ? LOG_FLOOR : Math.max(d.high, 1e-30) * LOG_FLOOR, high: likely ? 1 : Math.max(d.high, 1e-30), log: true };
        }
        if (!(full.high > full.low)) full.high = full.low + 1;
        const limits = { ...full };
        if (s.scale !== 'row' && !diverging) {
            if (s.low !== null && s.low >= full.low && s.low < full.high) limits.low = s.low;
            if (s.high !== null && s.high > limits.low && s.high <= full.high) limits.high = s.high;
        }
        return { full, limits };
    }

    #table(limits, diverging) {
        const ground = this.#ink().ground, key = JSON.stringify([limits, diverging || this.#state.colormap, ground]);
        if (!this.#tables.has(key)) {
            if (this.#tables.size > 8) this.#tables.clear();
            this.#tables.set(key, table(limits, this.#lut(diverging && 'diverging'), packed(ground)));
        }
        return this.#tables.get(key);
    }

    /* --- drawing ---------------------------------------------------------------------------------- */

    #render() {
        if (!this.isConnected) return;
        const ui = this.#ui, s = this.#state, d = this.#d, lost = this.#empty;
        ui.message.hidden = !this.#failure;
        ui.message.textContent = this.#failure;
        for (const view of VIEWS) {
            ui.tabs[view].setAttribute('aria-selected', String(s.view === view));
            ui.tabs[view].tabIndex = s.view === view ? 0 : -1;
        }
        ui.scale.value = s.scale;
        ui.colormap.value = s.colormap;
        this.#renderFilter();
        ui.stage.dataset.view = s.view;
        ui.stage.dataset.compare = s.view === 'compare' ? s.compare : '';
        ui.none.hidden = !lost;
        ui.body.hidden = lost;
        ui.none.textContent = d ? `This map has no cells: ${d.heads} heads, ${d.queries} queries, ${d.keys} keys.` : this.#failure ? '' : 'No map yet.';
        for (const [name, node] of Object.entries(ui.only)) node.hidden = name !== s.view || lost;
        ui.heads.hidden = lost || s.view === 'grid' || d.heads < 2;
        if (lost) return;
        ui.stage.setAttribute('aria-label', `Attention map, ${d.queries} queries by ${d.keys} keys, ${headName(d, s.head)}`);
        ui.panes[0].node.hidden = s.view === 'grid' || s.view === 'tokens';
        ui.panes[1].node.hidden = s.view !== 'compare' || s.compare === 'difference';
        ui.scroll.hidden = s.view !== 'grid' && s.view !== 'tokens';
        this.#renderHeads();
        const drawn = { grid: this.#renderGrid, matrix: this.#renderMatrix, tokens: this.#renderTokens, arcs: this.#renderArcs, compare: this.#renderCompare }[s.view].call(this);
        this.#renderLegend(drawn);
        this.#renderSide();
        this.#ask(drawn);
    }

    #canvases(pane) {
        const dpr = Math.min(2, devicePixelRatio || 1), width = pane.node.clientWidth, height = pane.node.clientHeight;
        for (const c of [pane.map, pane.over]) {
            const w = Math.round(width * dpr), hh = Math.round(height * dpr);
            if (c.width !== w || c.height !== hh) { c.width = w; c.height = hh; }
        }
        return { dpr, width, height };
    }

    /** All that drawPane() wants, for the screen or a file. */
    #describe(head, what, width, height, dpr) {
        const made = this.#levels(head, what), diverging = what === 'difference', ink = this.#ink(), { font } = this.#inkFor, { d } = made;
        const lay = layout(this.#ui.measure, d, width, height, this.#state.zoom, font);
        if (!made.levels) return { made, d, lay, diverging };
        const tiles = this.#state.scale !== 'row' && what === 'head' ? d.tiles.filter((t) => t.head === head) : [];
        const { full, limits } = this.#limits(made, lay, diverging);
        return { made, d, lay, diverging, full, limits, levels: made.levels, colours: this.#table(limits, diverging), tiles, layout: lay, ink, font, dpr, at: this.#cell };
    }

    #draw(pane, head, what) {
        const { dpr, width, height } = this.#canvases(pane), p = this.#describe(head, what, width, height, dpr);
        Object.assign(pane, { layout: p.lay, d: p.d, head, drawn: p.levels ? p : null });
        if (!p.levels) return p;
        p.used = drawPane(pane.map.getContext('2d'), p);
        this.#drawOver(pane);
        return p;
    }

    #drawOver(pane) {
        const { layout: lay, d, drawn } = pane;
        if (!lay || !drawn) return;
        const s = this.#state, top = d === this.#d && !drawn.diverging ? this.#thumb(pane.head) : null;
        drawCursor(pane.over.getContext('2d'), {
            d, layout: lay, ink: this.#ink(), dpr: drawn.dpr, cursor: { query: s.query, key: s.key }, hover: this.#hover, drag: pane.box,
            mini: top && { level: top, colours: drawn.colours },
        });
    }

    #renderMatrix() {
        this.#ui.panes[0].name.textContent = '';
        return this.#draw(this.#ui.panes[0], this.#head, 'head');
    }

    #renderCompare() {
        const s = this.#state, d = this.#d, o = this.#other?.d ?? d, [a, b] = this.#ui.panes;
        const heads = (m) => [...Array.from({ length: m.heads }, (_, k) => [k, headName(m, k)]), ['mean', 'mean of heads'], ['max', 'max of heads']];
        refill(this.#ui.a, heads(d), s.head);
        refill(this.#ui.b, heads(o), s.other);
        this.#ui.compare.value = s.compare;
        const nameB = `B: ${[o === d ? '' : visible(o.title || 'other', 40), headName(o, s.other)].filter(Boolean).join(' · ')}`;
        if (s.compare === 'difference') {
            if (o.rows !== d.rows || o.cols !== d.cols) {
                this.#ui.message.hidden = false;
                this.#ui.message.textContent = `A is ${d.queries} × ${d.keys}, B is ${o.queries} × ${o.keys}: a difference needs equal sizes. Side by side works.`;
                a.drawn = null;
                this.#canvases(a);
                a.map.getContext('2d').clearRect(0, 0, a.map.width, a.map.height);
                return {};
            }
            a.name.textContent = `A − B: ${headName(d, s.head)} − ${nameB.slice(3)}`;
            return this.#draw(a, s.head, 'difference');
        }
        a.name.textContent = `A: ${headName(d, this.#head)}`;
        b.name.textContent = nameB;
        this.#draw(b, s.other, o === d ? 'head' : 'other');
        return this.#draw(a, this.#head, 'head');
    }

    #renderArcs() {
        const s = this.#state, d = this.#d, pane = this.#ui.panes[0], { dpr, width, height } = this.#canvases(pane);
        this.#ui.lines.value = s.lines;
        if (d.pooled && s.lines === 'all') s.lines = 'row';
        const l = arcsLayout(d, width, height, this.#scroll), heads = s.selection.length > 1 && this.#hoverHead === null ? s.selection : [this.#head];
        this.#scroll = l.scroll;
        const made = heads.map((x) => (d.pooled ? null : this.#levels(x, 'head')));
        const rows = (n, q) => (d.pooled ? exactRow(d, heads[n], this.#raw(heads[n]), q) : made[n].values?.subarray(q * d.cols, (q + 1) * d.cols));
        const { lines, all, strongest } = arcsLines(d, l, heads, rows, s.lines === 'row' ? this.#cell.query : null);
        Object.assign(pane, { layout: null, arcs: l, d, head: this.#head });
        pane.drawn = null;
        pane.name.textContent = '';
        drawArcs(pane.map.getContext('2d'), { d, layout: l, ink: this.#ink(), dpr, font: this.#inkFor?.font, cursor: this.#cell, lines, strongest, heads });
        pane.over.getContext('2d').clearRect(0, 0, pane.over.width, pane.over.height);
        const note = all > lines.length ? `${lines.length} strongest of ${all} lines (at most ${MOST_LINES} are drawn). ` : `${lines.length} lines. `;
        const limits = { low: 0, high: strongest };
        return { full: limits, limits, kind: 'ramp', notes: [note, ...(heads.length > 1 ? heads.flatMap((x, k) => [hue(HUES[k % HUES.length]), headName(d, x)]) : ['Wider and stronger: more weight.'])] };
    }

    #limitsFor(head) {
        const made = this.#levels(head, 'head');
        return { made, ...this.#limits(made, null, false) };
    }

    /** Paints at one pixel a cell; the style sheet makes it larger. */
    #paintThumb(canvas, head) {
        const t = this.#thumb(head), s = this.#state;
        if (!t) return;
        let { limits } = this.#limits({ d: this.#d }, null, false);
        if (['head', 'row', 'visible'].includes(s.scale)) {
            const own = extremes(t.values, t.cols, 0, t.rows, 0, t.cols);
            limits = { low: Math.min(0, own.low), high: own.high || 1 };
        }
        const lut = this.#lut(), image = new ImageData(t.cols, t.rows), out = new Uint32Array(image.data.buffer);
        t.values.forEach((v, k) => { if (v - v === 0) out[k] = colourOf(v, limits, lut); });
        canvas.width = t.cols;
        canvas.height = t.rows;
        canvas.getContext('2d').putImageData(image, 0, 0);
    }

    #headButton(head) {
        const canvas = h('canvas', { width: 1, height: 1 }), label = h('span');
        canvas.setAttribute('aria-hidden', 'true');
        const node = h('button', {
            type: 'button', className: 'head',
            onpointerenter: (e) => { if (e.pointerType !== 'touch') { this.#hoverHead = head; this.#hovered(); } },
            onpointerleave: () => { this.#hoverHead = null; this.refresh(); },
            onclick: (e) => {
                if (e.shiftKey && typeof head === 'number') {
                    const had = this.#state.selection.includes(head);
                    this.#set({ selection: had ? this.#state.selection.filter((x) => x !== head) : [...this.#state.selection, head].sort((a, b) => a - b) });
                } else this.#set({ head }, true);
            },
            ondblclick: () => this.#set({ head, selection: [], view: 'matrix', zoom: { z: 1, x: 0, y: 0 } }),
        }, canvas, label);
        return Object.assign(node, { canvas, label, head });
    }

    #order() {
        const s = this.#state, d = this.#d, all = Array.from({ length: d.heads }, (_, k) => k);
        if (s.sort === 'index') return all;
        for (const k of all) this.#facts[k] ??= headFacts(d, k);
        const sign = s.sort === 'entropy' ? 1 : -1;
        return all.sort((a, b) => sign * (this.#facts[a][s.sort] - this.#facts[b][s.sort]) || a - b);
    }

    #fill(node, heads, name) {
        const key = heads.join();
        if (node.filledWith !== key || node.filledFor !== this.#d) {
            node.replaceChildren(...heads.map((x) => this.#headButton(x)));
            node.filledWith = key;
            node.filledFor = this.#d;
        }
        const wanted = this.#state.head, made = this.#thumbs.filter(Boolean).length, ready = JSON.stringify([wanted, this.#state.selection, this.#state.scale, this.#state.colormap, this.#ink(), made]);
        if (node.ready === ready && node.readyFor === this.#d) return;
        Object.assign(node, { ready, readyFor: this.#d });
        const picked = this.#state.selection, todo = [];
        for (const b of node.children) {
            b.setAttribute('aria-pressed', String(b.head === wanted));
            b.classList.toggle('chosen', picked.includes(b.head));
            const text = name(b.head);
            if (b.text !== text) { b.text = text; b.label.replaceChildren(...text.split('\n').flatMap((t, k) => (k ? [h('br'), h('small', { textContent: t })] : [t]))); }
            if (typeof b.head === 'number') todo.push(b); else todo.unshift(b);
        }
        const self = this;
        node.stop?.();
        node.stop = inSlices((function* () { for (const b of todo.reverse()) { self.#paintThumb(b.canvas, b.head); yield; } })(), () => {}, () => {});
    }

    #renderHeads() {
        if (this.#ui.heads.hidden) return;
        const d = this.#d, per = d.heads / d.layers;
        this.#fill(this.#ui.heads, ['mean', 'max', ...Array.from({ length: d.heads }, (_, k) => k)], (x) => (typeof x === 'string' ? `${x}\nof ${this.#state.selection.length || 'all'}`
            : d.layers > 1 ? `${Math.floor(x / per)}·${x % per}` : String(x)));
    }

    #renderGrid() {
        const s = this.#state, d = this.#d;
        this.#ui.tokens.hidden = true;
        this.#ui.grid.hidden = false;
        this.#ui.sort.value = s.sort;
        this.#ui.grid.style.gridTemplateColumns = d.layers > 1 && s.sort === 'index' && d.heads / d.layers <= 16 ? `repeat(${d.heads / d.layers}, minmax(64px, 1fr))` : '';
        this.#ui.grid.classList.toggle('few', d.heads <= 12);
        const note = { entropy: (f) => `${f.entropy.toFixed(2)} bits`, first: (f) => `${f.first.toFixed(3)} to the first`, diagonal: (f) => `${f.diagonal.toFixed(3)} near the diagonal` }[s.sort];
        this.#fill(this.#ui.grid, this.#order(), (x) => headName(d, x) + (note ? `\n${note(this.#facts[x])}` : ''));
        const preview = this.#ui.side.preview;
        this.#paintThumb(preview, this.#head);
        return this.#limitsFor(this.#head);
    }

    #renderTokens() {
        const s = this.#state, d = this.#d, ui = this.#ui, cell = this.#cell;
        ui.grid.hidden = true;
        ui.tokens.hidden = false;
        ui.direction.value = s.direction;
        const drawn = this.#limitsFor(this.#head), lut = this.#lut('ramp'), same = d.queries === d.keys && String(d.queryTokens) === String(d.keyTokens);
        const n = Math.max(d.queries, d.keys), shownTokens = Math.min(n, MOST_TOKENS);
        if (ui.tokens.filledFor !== d) {
            const run = (tokens, count, side) => Array.from({ length: Math.min(count, MOST_TOKENS) }, (_, k) => {
                const node = h('span', { dir: 'auto', textContent: visible(tokens ? tokens[k] : k, 60) });
                node.dataset.side = side;
                node.dataset.index = k;
                return node;
            });
            ui.tokens.replaceChildren(...(same ? run(d.keyTokens, d.keys, 'both') : [h('h3', { textContent: 'queries' }), ...run(d.queryTokens, d.queries, 'query'),
                h('h3', { textContent: 'keys' }), ...run(d.keyTokens, d.keys, 'key')]));
            ui.tokens.filledFor = d;
        }
        const from = s.direction === 'from', values = drawn.made.values;
        for (const node of ui.tokens.querySelectorAll('span')) {
            const k = Number(node.dataset.index), side = node.dataset.side;
            const q = from ? cell.query : k, j = from ? k : cell.key;
            node.className = [side !== 'key' && k === cell.query ? 'query' : '', side !== 'query' && k === cell.key ? 'key' : ''].join(' ');
            let v = NaN;
            if ((from ? side !== 'query' : side !== 'key') && values) v = d.pooled ? cellValue(d, this.#head, values, q, j).value : values[q * d.keys + j];
            const masked = (from ? side !== 'query' : side !== 'key') && s.mask && isMasked(d, this.#head, q, j);
            node.classList.toggle('masked', masked);
            const plain = v - v !== 0 || masked;
            const colour = plain ? '' : css(colourOf(v, drawn.limits, lut));
            node.style.backgroundColor = colour;
            const [r, g, b] = plain ? [0, 0, 0] : channels(colour);
            node.style.color = plain ? '' : 0.2126 * (r / 255) ** 2.2 + 0.7152 * (g / 255) ** 2.2 + 0.0722 * (b / 255) ** 2.2 > 0.18 ? '#000' : '#fff';
            node.title = plain ? '' : shortest(v);
        }
        return { ...drawn, kind: 'ramp', notes: [`${n > shownTokens ? `The first ${shownTokens} of ${n} tokens. ` : ''}${from ? 'What the outlined query attends to.' : 'Which queries attend to the underlined key.'}`] };
    }

    #renderLegend(drawn) {
        const s = this.#state, d = this.#d;
        if (!drawn?.limits) return;
        const lut = this.#lut(drawn.kind ?? (drawn.diverging && 'diverging'));
        const words = [], { used } = drawn;
        words.push(drawn.diverging ? 'A − B; the middle is no difference' : `scale: ${NAMES[s.scale]}${s.scale === 'log' ? `, ${drawn.full.low} and less have the first colour` : s.scale === 'row' ? ': 1 is the largest of its row' : ''}`);
        words.push('; ');
        words.push(this.#poolWords(used) + '. ');
        if (d.mask && s.mask) words.push(h('i', { className: 'swatch' }), ' masked. ');
        words.push(...(drawn.notes ?? []));
        if (drawn.made && !drawn.made.done) words.push(' (drawing finer…)');
        this.#ui.legend.update(drawn.full, drawn.limits, lut, words, s.scale !== 'row' && !drawn.diverging && s.view !== 'arcs');
    }

    #poolWords(level) {
        const d = this.#d, kind = d.pooled ?? this.#state.pool, [bh, bw] = level ? [level.bh, level.bw] : [d.bq, d.bk];
        return bh * bw === 1 ? 'every cell is one weight' : `each dot is the ${kind} of ${bh}×${bw} cells`;
    }

    #renderSide() {
        const s = this.#state, d = this.#d, head = this.#head, cell = this.#cell, values = this.#raw(head);
        const key = JSON.stringify([head, cell, s.selection, s.view, s.other, d.tiles.length, this.#ui.side.rows]);
        if (this.#ui.side.key === key && this.#ui.side.of === d && this.#ui.side.with === this.#other) return;
        Object.assign(this.#ui.side, { key, of: d, with: this.#other });
        this.#ui.side.preview.hidden = s.view !== 'grid';
        const pool = `the ${d.pooled} of its ${d.bq}×${d.bk} cells`;
        this.#ui.side.update(d, { head, ...cell }, exactRow(d, head, values, cell.query), cellValue(d, head, values, cell.query, cell.key), isMasked(d, head, cell.query, cell.key), this.#versus(cell, values), pool);
    }

    /** In Compare: what B says of the same cell. */
    #versus({ query, key }, values) {
        const s = this.#state, o = this.#other?.d ?? this.#d;
        if (s.view !== 'compare' || query >= o.queries || key >= o.keys) return [];
        const b = cellValue(o, s.other, this.#raw(s.other, o), query, key).value, a = cellValue(this.#d, this.#head, values, query, key).value;
        return [['B', shortest(b)], ['A − B', shortest(Math.fround(a - b))]];
    }

    #renderFilter() {
        const s = this.#state, ui = this.#ui, n = [s.threshold, s.topK, s.topP, s.hide].filter(Boolean).length;
        for (const name of ['threshold', 'topK', 'topP', 'hide']) if (this.shadowRoot.activeElement !== ui[name]) ui[name].value = s[name] || '';
        ui.renormalise.checked = s.renormalise;
        ui.mask.checked = s.mask;
        ui.pool.value = this.#d?.pooled ?? s.pool;
        ui.pool.disabled = Boolean(this.#d?.pooled);
        if (n) ui.filter.dataset.count = n; else delete ui.filter.dataset.count;
    }

    /** Asks the page for exact values where only pooled ones are here. */
    #ask(drawn) {
        const d = this.#d, head = this.#head, cell = this.#cell;
        if (!d.pooled || typeof head !== 'number') return;
        let want = null;
        const lay = drawn?.lay;
        if (!exactRow(d, head, null, cell.query)) want = { head, queries: [cell.query, cell.query + 1], keys: [0, d.keys] };
        if (lay && this.#state.view === 'matrix' && lay.sx * d.bk > 3 && lay.seenX * lay.seenY <= 1 << 20) {
            const q = [Math.floor(lay.y), Math.min(d.queries, Math.ceil(lay.y + lay.seenY))], k = [Math.floor(lay.x), Math.min(d.keys, Math.ceil(lay.x + lay.seenX))];
            const have = d.tiles.some((t) => t.head === head && t.queries[0] <= q[0] && t.queries[1] >= q[1] && t.keys[0] <= k[0] && t.keys[1] >= k[1]);
            const wide = (r, n) => { const m = Math.ceil((r[1] - r[0]) / 4); return [Math.max(0, r[0] - m), Math.min(n, r[1] + m)]; };
            if (!have) want = { head, queries: wide(q, d.queries), keys: wide(k, d.keys) };
        }
        const key = JSON.stringify(want);
        if (!want || key === this.#needed) return;
        this.#needed = key;
        this.dispatchEvent(new CustomEvent('attention-need', { bubbles: true, composed: true, detail: want }));
    }

    /* --- what people do --------------------------------------------------------------------------- */

    #detail(cell = this.#cell) {
        const d = this.#d, head = this.#head, { value } = cellValue(d, head, this.#raw(head), cell.query, cell.key);
        return { head, query: cell.query, key: cell.key, value };
    }

    #hovered() {
        if (this.#empty) return;
        this.dispatchEvent(new CustomEvent('attention-hover', { bubbles: true, composed: true, detail: this.#detail() }));
        this.refresh();
    }

    #hoverCell(cell) {
        if (this.#state.locked && cell && this.#state.view === 'tokens') {
            cell = this.#state.direction === 'from' ? { ...cell, query: this.#state.query } : { ...cell, key: this.#state.key };
        }
        if (cell?.query === this.#hover?.query && cell?.key === this.#hover?.key) return;
        this.#hover = cell;
        if (cell) this.#hovered(); else this.refresh();
    }

    #select(cell, locked = this.#state.locked) {
        this.#hover = null;
        this.#set({ query: cell.query, key: cell.key, locked }, true);
        this.#follow();
        this.dispatchEvent(new CustomEvent('attention-select', { bubbles: true, composed: true, detail: this.#detail() }));
    }

    #speak() {
        if (this.#empty) return;
        const d = this.#d, s = this.#state, values = this.#raw(s.head), row = exactRow(d, s.head, values, s.query);
        const { value, exact } = cellValue(d, s.head, values, s.query, s.key);
        const rank = row ? `, rank ${rowFacts(row, s.key).rank}` : `, ${d.pooled} of ${d.bq}×${d.bk} cells`;
        this.#ui.live.replaceChildren(...place(d, s), `: ${exact ? '' : '≤ '}${shortest(value)}${rank}`, isMasked(d, s.head, s.query, s.key) ? ', masked' : '');
    }

    /** Scrolls so that the cursor is seen. */
    #follow() {
        const s = this.#state, lay = this.#ui.panes[0].layout, arcs = this.#ui.panes[0].arcs;
        if (s.view === 'arcs' && arcs) {
            const at = s.query * arcs.step + 18;
            if (at < this.#scroll + 10 || at > this.#scroll + arcs.height - 20) this.#scroll = at - arcs.height / 2;
        }
        if (s.view === 'tokens') this.#ui.tokens.querySelector('span.query')?.scrollIntoView({ block: 'nearest' });
        if (!lay || s.zoom.z === 1) return;
        const into = (at, from, seen) => (at < from ? at : at + 1 > from + seen ? at + 1 - seen : from);
        this.#set({ zoom: { z: s.zoom.z, x: into(s.key, lay.x, lay.seenX), y: into(s.query, lay.y, lay.seenY) } });
    }

    #zoomAt(pane, px, py, factor) {
        const l = pane.layout;
        if (!l) return;
        const s = this.#state, fit = l.sx / s.zoom.z, most = Math.max(1, 96 / fit), z = Math.max(1, Math.min(most, s.zoom.z * factor));
        if (z === 1) { this.#set({ zoom: { z: 1, x: 0, y: 0 } }); return; }
        const cx = l.x + (px - l.box.x) / l.sx, cy = l.y + (py - l.box.y) / l.sy, by = s.zoom.z / z;
        this.#set({ zoom: { z, x: Math.max(0, cx - (cx - l.x) * by), y: Math.max(0, cy - (cy - l.y) * by) } });
    }

    #onKey(e) {
        if (this.#empty || e.altKey || e.metaKey || e.target.closest?.('input, select, dialog, .menu')) return;
        const onStage = e.composedPath()[0] === this.#ui.stage, s = this.#state, d = this.#d;
        if (e.key === '?') { this.#ui.help.showModal(); return; }
        if (!onStage) return;
        const cell = { query: s.query, key: s.key }, turn = (by) => {
            const now = typeof s.head === 'number' ? s.head : by > 0 ? -1 : d.heads;
            this.#hoverHead = null;
            this.#set({ head: Math.max(0, Math.min(d.heads - 1, now + by)) }, true);
        };
        const centre = (f) => { const l = this.#ui.panes[0].layout; if (l) this.#zoomAt(this.#ui.panes[0], l.box.x + (s.key + 0.5 - l.x) * l.sx, l.box.y + (s.query + 0.5 - l.y) * l.sy, f); };
        const moves = {
            ArrowLeft: () => cell.key--, ArrowRight: () => cell.key++, ArrowUp: () => cell.query--, ArrowDown: () => cell.query++,
            Home: () => { if (e.ctrlKey) cell.query = 0; else cell.key = 0; }, End: () => { if (e.ctrlKey) cell.query = d.queries - 1; else cell.key = d.keys - 1; },
            PageUp: () => { cell.query -= 10; }, PageDown: () => { cell.query += 10; },
        };
        const acts = {
            '[': () => turn(-1), ']': () => turn(1), '+': () => centre(1.5), '=': () => centre(1.5), '-': () => centre(1 / 1.5),
            0: () => this.#set({ zoom: { z: 1, x: 0, y: 0 } }), Enter: () => this.#select(cell, !s.locked), Escape: () => this.#set({ locked: false, selection: [] }),
        };
        VIEWS.forEach((view, k) => { acts[k + 1] = () => this.#set({ view }); });
        if (moves[e.key]) {
            moves[e.key]();
            cell.query = Math.max(0, Math.min(d.queries - 1, cell.query));
            cell.key = Math.max(0, Math.min(d.keys - 1, cell.key));
            this.#select(cell);
        } else if (acts[e.key] && !e.ctrlKey) acts[e.key]();
        else return;
        e.preventDefault();
    }

    #pointers(pane) {
        const node = pane.node, down = new Map();
        let start = null;
        const where = (e) => { const b = node.getBoundingClientRect(); return { x: e.clientX - b.left, y: e.clientY - b.top }; };
        const cellOf = (p) => {
            if (pane.layout) return cellAt(pane.layout, pane.d, p.x, p.y);
            const hit = pane.arcs && arcsHit(pane.d, pane.arcs, p.x, p.y);
            return hit && { query: this.#state.query, key: this.#state.key, ...hit };
        };
        const wheel = (e) => {
            e.preventDefault();
            if (!pane.layout) { this.#scroll += e.deltaY; this.refresh(); return; }
            const p = where(e);
            this.#zoomAt(pane, p.x, p.y, Math.exp(-Math.max(-100, Math.min(100, e.deltaY)) * (e.ctrlKey ? 0.01 : 0.004)));
        };
        node.addEventListener('wheel', wheel, { passive: false });
        node.addEventListener('pointerdown', (e) => {
            if (e.button !== 0 || this.#empty) return;
            node.setPointerCapture(e.pointerId);
            const p = where(e);
            down.set(e.pointerId, p);
            start = { ...p, zoom: { ...this.#state.zoom }, lay: pane.layout, scroll: this.#scroll, moved: down.size > 1, shift: e.shiftKey };
        });
        node.addEventListener('pointermove', (e) => {
            const p = where(e);
            if (!down.has(e.pointerId)) { this.#hoverCell(cellOf(p)); return; }
            const before = down.get(e.pointerId);
            if (down.size === 2 && pane.layout) {
                const other = [...down].find(([id]) => id !== e.pointerId)[1];
                const span = (a) => Math.hypot(a.x - other.x, a.y - other.y) || 1;
                this.#zoomAt(pane, (p.x + other.x) / 2, (p.y + other.y) / 2, span(p) / span(before));
            } else if (start && (start.moved || Math.hypot(p.x - start.x, p.y - start.y) > 4)) {
                start.moved = true;
                if (!start.lay) { this.#scroll = start.scroll + start.y - p.y; this.refresh(); }
                else if (start.shift) { pane.box = { x0: start.x, y0: start.y, x1: p.x, y1: p.y }; this.#drawOver(pane); }
                else if (this.#state.zoom.z > 1) {
                    const l = start.lay;
                    this.#set({ zoom: { z: this.#state.zoom.z, x: Math.max(0, l.x - (p.x - start.x) / l.sx), y: Math.max(0, l.y - (p.y - start.y) / l.sy) } });
                }
            }
            down.set(e.pointerId, p);
        });
        const up = (e) => {
            if (!down.delete(e.pointerId) || !start) return;
            const p = where(e);
            if (pane.box && pane.layout) this.#zoomBox(pane);
            else if (!start.moved && e.type === 'pointerup') {
                const m = pane.layout && this.#state.zoom.z > 1 && minimapBox(pane.layout, pane.d);
                if (m && p.x > m.x && p.y > m.y && p.x < m.x + m.w && p.y < m.y + m.h) {
                    const l = pane.layout;
                    this.#set({ zoom: { z: this.#state.zoom.z, x: Math.max(0, ((p.x - m.x) / m.w) * pane.d.keys - l.seenX / 2), y: Math.max(0, ((p.y - m.y) / m.h) * pane.d.queries - l.seenY / 2) } });
                } else {
                    const cell = cellOf(p);
                    if (cell) this.#select({ query: Math.min(cell.query, this.#d.queries - 1), key: Math.min(cell.key, this.#d.keys - 1) }, true);
                }
            }
            start = null;
        };
        node.addEventListener('pointerup', up);
        node.addEventListener('pointercancel', up);
        node.addEventListener('pointerleave', () => this.#hoverCell(null));
        node.addEventListener('dblclick', (e) => { const p = where(e); this.#zoomAt(pane, p.x, p.y, 2); });
    }

    #zoomBox(pane) {
        const { x0, y0, x1, y1 } = pane.box, l = pane.layout, s = this.#state;
        pane.box = null;
        const f = Math.min(l.box.w / Math.max(8, Math.abs(x1 - x0)), l.box.h / Math.max(8, Math.abs(y1 - y0)));
        const z = Math.min(Math.max(1, 96 / (l.sx / s.zoom.z)), s.zoom.z * f);
        this.#set({ zoom: { z, x: Math.max(0, l.x + (Math.min(x0, x1) - l.box.x) / l.sx), y: Math.max(0, l.y + (Math.min(y0, y1) - l.box.y) / l.sy) } });
        this.refresh();
    }

    /* --- files ------------------------------------------------------------------------------------ */

    #exported(scale) {
        const s = this.#state, { node } = this.#ui.panes[0], what = s.view === 'compare' && s.compare === 'difference' ? 'difference' : 'head';
        const p = this.#describe(s.head, what, node.clientWidth || 800, node.clientHeight || 600, scale), words = this.#poolWords(pickLevel(p.levels, p.lay.sx, p.lay.sy));
        return { ...p, at: null, lut: this.#lut(p.diverging && 'diverging'), ground: p.ink.ground, name: [this.#d.title, headName(this.#d, s.head)].filter(Boolean).join(' · '), words: p.diverging ? 'A − B' : `scale: ${NAMES[s.scale]}; ${words}` };
    }

    #legendOn(g, p) {
        const y = p.layout.height + 8, { x } = p.layout.box, say = (v) => shortest(Number(v.toPrecision(3)));
        g.drawImage(this.#ui.legend.bar, x, y, 220, 10);
        g.fillStyle = p.ink.muted;
        g.font = `11px ${p.font}`;
        g.textBaseline = 'alphabetic';
        g.textAlign = 'left';
        g.fillText(`${say(p.full.low)} to ${say(p.full.high)} · ${visible(p.name, 80)} · ${p.words}`, x, y + 26);
    }

    /** A picture: of the view at 1, 2 or 4 times its size, or {exact: true}: one pixel a cell. */
    async toBlob({ scale = 1, exact = false, type = 'image/png' } = {}) {
        const p = this.#exported(scale), canvas = h('canvas'), g = canvas.getContext('2d');
        if (exact) {
            const l = p.levels[0];
            canvas.width = l.cols;
            canvas.height = l.rows;
            g.fillStyle = p.ink.line;
            g.fillRect(0, 0, l.cols, l.rows);
            paintCells(g, [l], p.colours, { x: 0, y: 0, sx: 1 / l.bw, sy: 1 / l.bh }, { x: 0, y: 0, w: l.cols, h: l.rows });
        } else if (this.#state.view === 'arcs') {
            const pane = this.#ui.panes[0], l = pane.arcs;
            canvas.width = Math.round(l.width * scale);
            canvas.height = Math.round(l.height * scale);
            g.fillStyle = p.ink.ground;
            g.fillRect(0, 0, canvas.width, canvas.height);
            g.drawImage(pane.map, 0, 0, canvas.width, canvas.height);
        } else {
            canvas.width = Math.round(p.layout.width * scale);
            canvas.height = Math.round((p.layout.height + 44) * scale);
            drawPane(g, p);
            this.#legendOn(g, p);
        }
        return new Promise((resolve) => { canvas.toBlob(resolve, type); });
    }

    toSVG() {
        const p = this.#exported(1);
        p.picture = () => {
            const l = p.layout, c = h('canvas'), g = c.getContext('2d');
            c.width = Math.min(4096, Math.ceil(Math.min(l.box.w, (p.d.keys - l.x) * l.sx)));
            c.height = Math.min(4096, Math.ceil(Math.min(l.box.h, (p.d.queries - l.y) * l.sy)));
            paintCells(g, p.levels, p.colours, { x: l.x, y: l.y, sx: l.sx, sy: l.sy }, { x: 0, y: 0, w: c.width, h: c.height });
            return c.toDataURL('image/png');
        };
        return toSVG(p);
    }

    toTSV() { return toTSV(this.#d, this.#raw(this.#state.head)); }

    /** All heads [heads, queries, keys], or {head: true}: the one that is chosen, [queries, keys]. */
    toNPY({ head = false } = {}) {
        const d = this.#d;
        return head ? toNPY(this.#raw(this.#state.head), [d.rows, d.cols]) : toNPY(d.values, [d.heads, d.rows, d.cols]);
    }

    async toHTML() {
        const plain = JSON.parse(JSON.stringify({ ...this.#given, values: undefined }, (_, v) => (ArrayBuffer.isView(v) ? Array.from(v) : v)));
        return toHTML({ data: plain, state: this.#state }, this.#d.values, await AttentionMap.sources());
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

    async #load(url) {
        try {
            const reply = await fetch(url);
            if (!reply.ok) throw new Error(`${url}: the server answered ${reply.status}`);
            this.data = await reply.json();
        } catch (e) {
            this.showError(e.message);
        }
    }

    #name(ending) {
        const title = (this.#d.title || 'attention').replace(/[^\p{L}\p{N}._-]+/gu, '-').slice(0, 60);
        return `${title}-${String(headName(this.#d, this.#state.head)).replace(/[^\p{L}\p{N}]+/gu, '-')}.${ending}`;
    }

    async #save(make, ending) {
        try {
            const made = await make(), blob = made instanceof Blob ? made : new Blob([made], { type: ending === 'svg' ? 'image/svg+xml' : 'text/tab-separated-values' });
            const link = h('a', { href: URL.createObjectURL(blob), download: this.#name(ending) });
            link.click();
            setTimeout(() => URL.revokeObjectURL(link.href), 60000);
        } catch (e) {
            this.showError(`The export failed: ${e.message}`);
        }
    }

    async #copy(text, button) {
        const before = button.textContent;
        try {
            await navigator.clipboard.writeText(text);
            button.textContent = 'Copied';
        } catch {
            button.textContent = 'The browser refused';
        }
        setTimeout(() => { button.textContent = before; }, 1500);
    }

    #copyCell(e) {
        const { head, query, key, value } = this.#detail(), d = this.#d;
        this.#copy(JSON.stringify({ head, query, key, queryToken: d.queryTokens?.[query], keyToken: d.keyTokens?.[key], value: Number(shortest(value)) }), e.target);
    }

    #copyRow(e) {
        const d = this.#d, s = this.#state, row = exactRow(d, s.head, this.#raw(s.head), s.query) ?? [];
        this.#copy(Array.from(row, (v, j) => `${j}\t${d.keyTokens ? visible(d.keyTokens[j], 10000) : ''}\t${shortest(v)}`).join('\n'), e.target);
    }

    /* --- the parts -------------------------------------------------------------------------------- */

    #build(root) {
        const ui = this.#ui, set = (name, read = (t) => t.value) => (e) => this.setState({ [name]: read(e.target) });
        const button = (textContent, onclick, given = {}) => h('button', { type: 'button', textContent, onclick, ...given });
        ui.tabs = Object.fromEntries(VIEWS.map((view) => [view, button(NAMES[view], () => this.setState({ view }), { role: 'tab' })]));
        const tabs = h('div', { className: 'tabs', part: 'tabs', role: 'tablist', 'aria-label': 'View', onkeydown: (e) => {
            const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
            if (!by) return;
            const view = VIEWS[(VIEWS.indexOf(this.#state.view) + by + VIEWS.length) % VIEWS.length];
            this.setState({ view });
            ui.tabs[view].focus();
        } }, ...Object.values(ui.tabs));
        const scale = choose('Scale', set('scale'), SCALES.map((x) => [x, NAMES[x]]));
        const colours = choose('Colours', set('colormap'), COLOUR_MAPS.map((x) => [x, x]));
        [ui.scale, ui.colormap] = [scale.lastChild, colours.lastChild];
        const menu = (title, ...content) => h('details', { ontoggle: (e) => { if (e.target.open) for (const x of root.querySelectorAll('details[open]')) if (x !== e.target) x.open = false; },
            onkeydown: (e) => { if (e.key === 'Escape') { e.currentTarget.open = false; e.currentTarget.firstChild.focus(); } } }, h('summary', { textContent: title }), h('div', { className: 'menu' }, ...content));
        const number = (label, name, given) => { ui[name] = h('input', { type: 'number', min: 0, oninput: set(name, (t) => Number(t.value) || 0), ...given }); return h('label', {}, label, ui[name]); };
        const check = (label, name) => { ui[name] = h('input', { type: 'checkbox', onchange: set(name, (t) => t.checked) }); return h('label', {}, label, ui[name]); };
        const pool = choose('Pooling of far views', set('pool'), [['max', 'max'], ['mean', 'mean']]);
        ui.pool = pool.lastChild;
        ui.hide = h('input', { type: 'text', placeholder: '[CLS], the or /^\\W/', oninput: set('hide') });
        const filter = menu('Filter', number('At least', 'threshold', { max: 1, step: 'any', placeholder: 'any weight' }), number('Top k of a row', 'topK', { step: 1, placeholder: 'all' }), number('Top p of a row', 'topP', { max: 1, step: 'any', placeholder: 'all' }),
            h('label', {}, 'Hide keys', ui.hide), check('Renormalise what is left', 'renormalise'), check('Hatch masked cells', 'mask'), pool,
            h('p', { textContent: 'Filters change what is drawn, never the numbers in the panel.' }), button('Clear filters', () => this.setState({ threshold: 0, topK: 0, topP: 0, hide: '', renormalise: false })));
        ui.filter = filter.firstChild;
        const save = (text, make, ending) => button(text, () => this.#save(make, ending));
        const files = menu('Export', h('div', { className: 'three' }, ...[1, 2, 4].map((x) => save(`PNG ${x}×`, () => this.toBlob({ scale: x }), 'png'))), save('PNG, one pixel a cell', () => this.toBlob({ exact: true }), 'png'), save('SVG', () => this.toSVG(), 'svg'),
            save('TSV of this head', () => this.toTSV(), 'tsv'), h('div', { className: 'pair' }, save('NPY, this head', () => this.toNPY({ head: true }), 'npy'), save('NPY, all heads', () => this.toNPY(), 'npy')), save('HTML report, one file', () => this.toHTML(), 'html'),
            h('div', { className: 'pair' }, button('Copy cell', (e) => this.#copyCell(e)), button('Copy row', (e) => this.#copyRow(e))));
        const sort = choose('Order by', set('sort'), [['index', 'number'], ['entropy', 'entropy'], ['first', 'weight on first key'], ['diagonal', 'weight near diagonal']]);
        const direction = choose('Direction', set('direction'), [['from', 'attends to'], ['to', 'attended by']]);
        const lines = choose('Lines of', set('lines'), [['row', 'chosen query'], ['all', 'all in sight']]);
        const head = (t) => (t.value === 'mean' || t.value === 'max' ? t.value : Number(t.value));
        const a = choose('A', set('head', head), []), b = choose('B', set('other', head), []), compare = choose('Show', set('compare'), [['side', 'side by side'], ['difference', 'A − B']]);
        Object.assign(ui, { sort: sort.lastChild, direction: direction.lastChild, lines: lines.lastChild, a: a.lastChild, b: b.lastChild, compare: compare.lastChild });
        ui.only = { grid: sort, tokens: direction, arcs: lines, compare: h('span', { className: 'bar' }, a, b, compare) };
        ui.help = h('dialog', { 'aria-label': 'Help' }, h('h2', { textContent: 'Keys' }), h('dl', {}, ...KEYS.flatMap(([k, what]) => [h('dt', {}, h('kbd', { textContent: k })), h('dd', { textContent: what })])),
            h('p', { textContent: 'Keys work while the map has the focus. Wheel or pinch zooms, dragging moves, shift and dragging zooms into a box; a click on a head chooses it, with shift it joins the selection, a double click shows it alone.' }),
            h('p', { textContent: 'The weights show what was mixed into a token at this layer, not why, and not what the model as a whole relied on.' }), button('Close', () => ui.help.close()));
        ui.toolbar = h('div', { className: 'bar', part: 'toolbar' }, tabs, ...Object.values(ui.only), h('span', { className: 'grow' }), scale, colours, filter, files, button('?', () => ui.help.showModal(), { 'aria-label': 'Help' }));
        ui.message = h('div', { className: 'message', part: 'message', role: 'alert', hidden: true });
        ui.heads = h('div', { className: 'heads', part: 'heads', role: 'group', 'aria-label': 'Heads' });
        ui.panes = ['a', 'b'].map((name) => {
            const pane = { name: h('span'), map: h('canvas'), over: h('canvas') };
            for (const c of [pane.map, pane.over]) c.setAttribute('aria-hidden', 'true');
            pane.node = h('div', { className: `pane ${name}` }, pane.map, pane.over, pane.name);
            this.#pointers(pane);
            return pane;
        });
        ui.grid = h('div', { className: 'grid', role: 'group', 'aria-label': 'Heads' });
        const tokenCell = (e) => {
            const t = e.target.closest?.('span[data-index]');
            if (!t) return null;
            const k = Number(t.dataset.index), s = this.#state, from = s.direction === 'from', side = t.dataset.side;
            const query = side === 'query' || (side === 'both' && from) ? { query: k } : { key: k };
            return { query: s.query, key: s.key, ...query };
        };
        ui.tokens = h('div', { className: 'tokens', onclick: (e) => { const c = tokenCell(e); if (c) this.#select(c, true); },
            onpointermove: (e) => { const t = tokenCell(e); if (e.pointerType !== 'touch') this.#hoverToken(t, e); }, onpointerleave: () => this.#hoverCell(null) });
        ui.scroll = h('div', { className: 'scroll' }, ui.grid, ui.tokens);
        ui.stage = h('div', { className: 'stage', part: 'stage', role: 'application', tabIndex: 0, 'aria-roledescription': 'attention map', 'aria-describedby': 'keys' }, ...ui.panes.map((p) => p.node), ui.scroll);
        ui.legend = new Legend(this);
        ui.side = new Side(this);
        ui.body = h('div', { className: 'body' }, h('div', { className: 'left' }, ui.stage, ui.legend.node), ui.side.node);
        ui.none = h('div', { className: 'none' });
        ui.live = h('div', { className: 'spoken', part: 'live', 'aria-live': 'polite' });
        ui.probe = h('i', { hidden: true });
        ui.measure = h('canvas').getContext('2d');
        root.append(ui.toolbar, ui.message, ui.heads, ui.body, ui.none, ui.live, h('p', { id: 'keys', hidden: true, textContent: 'Arrow keys move between cells, question mark lists all keys.' }), ui.probe, ui.help);
        root.addEventListener('keydown', (e) => this.#onKey(e));
        document.addEventListener('pointerdown', (e) => {
            for (const x of root.querySelectorAll('details[open]')) if (!e.composedPath().includes(x)) x.open = false;
        });
    }

    /** In Tokens a locked query stays, and the pointer shows its weight on what is under it. */
    #hoverToken(cell, e) {
        if (!cell) { this.#hoverCell(null); return; }
        const t = e.target.closest('span[data-index]'), k = Number(t.dataset.index), s = this.#state;
        if (s.locked) this.#hoverCell(s.direction === 'from' ? { query: s.query, key: Math.min(k, this.#d.keys - 1) } : { query: Math.min(k, this.#d.queries - 1), key: s.key });
        else this.#hoverCell(cell);
    }
}
