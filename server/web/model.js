// model.js: what is shown: the state and its text for links, the map, and what is made of both and kept until one
// changes.

import { COLOUR_MAPS, packed, palette, table } from './colour.js';
import { cellValue, clamp, count, exactRow, headFacts, headValues, hiddenKeys, inSlices, isMasked, level,
    pickLevel, pyramid, shown, thumbnail } from './data.js';

/* --- the state ------------------------------------------------------------------------------------ */

export const VIEWS = ['grid', 'matrix', 'tokens', 'arcs', 'compare'];
export const SCALES = {
    absolute: 'absolute 0–1', row: 'per row', head: 'per head', visible: 'visible range', log: 'logarithmic',
};
export const ORDERS = {
    index: 'number', entropy: 'entropy', first: 'weight on first key', diagonal: 'weight near diagonal',
};

// What may stand in a link: read gives undefined for what is not possible.
const field = (read, write = String) => ({ read, write });
const one = (...values) => field((t) => (values.includes(t) ? t : undefined));
const number = (low, high) => field((t) => (t !== '' && t >= low && t <= high ? Number(t) : undefined));
const readWhole = (t) => (/^\d{1,9}$/.test(t) ? Number(t) : undefined);
const whole = field(readWhole);
const flag = field((t) => (t === '1' ? true : t === '0' ? false : undefined), (v) => (v ? '1' : '0'));
const text = field((t) => t.slice(0, 500));
const head = field((t) => (t === 'mean' || t === 'max' ? t : readWhole(t)));
const heads = field((t) => {
    const all = t === '' ? [] : t.split('.').map(readWhole);
    return all.includes(undefined) ? undefined : all;
}, (v) => v.join('.'));
const zoom = field((t) => {
    const [z, x, y] = t.split(',').map(Number);
    return z >= 1 && z <= 1e6 && x >= 0 && y >= 0 ? { z, x, y } : undefined;
}, (v) => [v.z, v.x, v.y].map((n) => Number(n.toPrecision(8))).join(','));

// name: [key in a link, how it is read and written, default]
const FIELDS = {
    view: ['view', one(...VIEWS), 'matrix'],
    head: ['h', head, 0],
    selection: ['sel', heads, []],
    query: ['q', whole, 0],
    key: ['k', whole, 0],
    locked: ['lock', flag, false],
    scale: ['scale', one(...Object.keys(SCALES)), 'absolute'],
    low: ['lo', number(-1e38, 1e38), null],
    high: ['hi', number(-1e38, 1e38), null],
    threshold: ['thr', number(0, 1e38), 0],
    topK: ['topk', whole, 0],
    topP: ['topp', number(0, 1), 0],
    hide: ['hide', text, ''],
    renormalise: ['renorm', flag, false],
    mask: ['mask', flag, true],
    colormap: ['cm', one(...COLOUR_MAPS), 'cividis'],
    pool: ['pool', one('max', 'mean'), 'max'],
    direction: ['dir', one('from', 'to'), 'from'],
    lines: ['lines', one('row', 'all'), 'row'],
    sort: ['sort', one(...Object.keys(ORDERS)), 'index'],
    other: ['b', head, 1],
    compare: ['cmp', one('side', 'difference'), 'side'],
    zoom: ['zoom', zoom, { z: 1, x: 0, y: 0 }],
};

export const initial = () =>
    structuredClone(Object.fromEntries(Object.entries(FIELDS).map(([name, f]) => [name, f[2]])));

/** Only what is a field and has a possible value. */
export function sane(given) {
    const out = {};
    for (const [name, [, kind, fallback]] of Object.entries(FIELDS)) {
        const v = given[name] ?? null, value = v === null ? null : kind.read(kind.write(v));
        if (name in given && value !== undefined && (v !== null || fallback === null)) out[name] = value;
    }
    return out;
}

/** "v=1&view=grid&h=3": what differs from the defaults, then `others`, pairs that are not ours. */
export function toLink(state, others = []) {
    const out = new URLSearchParams({ v: 1 });
    for (const [name, [key, kind, fallback]] of Object.entries(FIELDS)) {
        const value = state[name];
        if (JSON.stringify(value) !== JSON.stringify(fallback)) out.set(key, kind.write(value));
    }
    for (const [key, value] of others) out.set(key, value);
    return out.toString();
}

/** {state, others}: whatever a link holds, nothing in it is an error. */
export function fromLink(link) {
    const state = {}, others = [], fields = Object.entries(FIELDS);
    for (const [key, value] of new URLSearchParams(link)) {
        if (key === 'v') continue;
        const [name, [, kind] = []] = fields.find(([, f]) => f[0] === key) ?? [];
        const read = kind?.read(value);
        if (!kind) others.push([key, value]);
        else if (read !== undefined) state[name] = read;
    }
    return { state, others };
}

/* --- the map -------------------------------------------------------------------------------------- */

const LOG_FLOOR = 1e-4;
const MOST_TILES = 1 << 24; // cells of exact parts of a pooled map

/** The least and the largest finite value of a level, or of the part of it given in cells of the level. */
export function extremes({ values, rows, cols }, r0 = 0, r1 = rows, c0 = 0, c1 = cols) {
    let low = Infinity, high = -Infinity;
    for (let r = r0; r < r1; r++) {
        for (let k = r * cols + c0; k < r * cols + c1; k++) {
            const v = values[k];
            if (v - v !== 0) continue;
            if (v < low) low = v;
            if (v > high) high = v;
        }
    }
    return low > high ? { low: 0, high: 1 } : { low, high };
}

export class Model {
    given = null; // the map as it was given, and as checkData() has it
    data = null;
    other = null; // Compare's second map: {given, data}
    state = initial();
    hover = null; // {query, key} under the pointer
    hoverHead = null;
    failure = '';
    scroll = 0; // of Arcs
    ui = {};
    #made = new Map(); // values as shown and their pyramids, by what they were made of
    #sums = new Map(); // values of "mean" and "max"
    #tables = new Map(); // of colours
    #thumbs = [];
    #facts = [];
    #ink = null;
    #stopThumbs = null;

    /** host: the element; refresh() draws soon; changed(change, speak) hears of every new state. */
    constructor(host, refresh, changed) {
        Object.assign(this, { host, refresh, changed });
    }

    get head() { return this.hoverHead ?? this.state.head; }
    get cell() { return this.hover ?? { query: this.state.query, key: this.state.key }; }
    get empty() { const d = this.data; return !d || !d.heads || !d.queries || !d.keys; }
    get otherData() { return this.other?.data ?? this.data; }

    emit(name, detail) {
        this.host.dispatchEvent(new CustomEvent(name, { bubbles: true, composed: true, detail }));
    }

    show(given, data) {
        this.#drop(() => true);
        this.#sums.clear();
        this.#facts = [];
        Object.assign(this, { given, data, hover: null, hoverHead: null });
        this.#stopThumbs?.();
        if (!data) return;
        this.#adopt();
        this.#makeThumbs();
    }

    compareWith(given, data) {
        this.other = given ? { given, data } : null;
        this.#drop((key) => /^(other|difference)/.test(key));
    }

    set(change, speak = false) {
        const before = JSON.stringify(this.state), { hide, renormalise } = this.state;
        Object.assign(this.state, change);
        if (this.data) this.#adopt();
        const s = this.state;
        if (this.data && (s.hide !== hide || s.renormalise !== renormalise)) this.#makeThumbs();
        if ('selection' in change) {
            this.#sums.clear();
            this.#drop((key) => /"(mean|max)"/.test(key));
        }
        if (JSON.stringify(this.state) === before) return;
        this.refresh();
        this.changed(change, speak);
    }

    /** The state may come from a link to another map: keep it within this one. */
    #adopt() {
        const s = this.state, d = this.data;
        if (typeof s.head === 'number') s.head = clamp(s.head, 0, d.heads - 1);
        if (typeof s.other === 'number') s.other = clamp(s.other, 0, this.otherData.heads - 1);
        s.selection = s.selection.filter((x) => x < d.heads);
        if (d.pooled) s.lines = 'row'; // all rows are not here
        Object.assign(s, this.within(s));
    }

    within({ query, key }) {
        return { query: clamp(query, 0, Math.max(0, this.data.queries - 1)),
            key: clamp(key, 0, Math.max(0, this.data.keys - 1)) };
    }

    /* --- values ------------------------------------------------------------------------------- */

    raw(head, d = this.data) {
        if (typeof head !== 'string') return headValues(d, head, []);
        const own = d === this.data, key = `${own} ${head}`;
        if (!this.#sums.has(key)) this.#sums.set(key, headValues(d, head, own ? this.state.selection : []));
        return this.#sums.get(key);
    }

    row(head, query) { return exactRow(this.data, head, this.raw(head), query); }
    value(head, { query, key }, d = this.data) { return cellValue(d, head, this.raw(head, d), query, key); }
    masked(head, { query, key }) { return isMasked(this.data, head, query, key); }

    detail() {
        const { head, cell } = this;
        return { head, ...cell, value: this.value(head, cell).value };
    }

    /** Exact values of a part of a pooled map. */
    addTile({ head, queries, keys, values }) {
        const rows = queries[1] - queries[0], cols = keys[1] - keys[0], { tiles } = this.data;
        const exact = Float32Array.from(values), n = exact.length;
        if (n !== rows * cols) {
            throw new RangeError(`values holds ${n} numbers, but its ranges span ${rows * cols} cells`);
        }
        for (let query = queries[0], k = 0; query < queries[1]; query++) {
            for (let key = keys[0]; key < keys[1]; key++, k++) {
                if (exact[k] === 0 && this.masked(head, { query, key })) exact[k] = NaN;
            }
        }
        tiles.push({ head, queries: [...queries], keys: [...keys], ...level(exact, rows, cols) });
        let held = 0;
        for (let k = tiles.length - 1; k >= 0; k--) {
            held += tiles[k].values.length;
            if (held > MOST_TILES || tiles.length - k > 64) {
                tiles.splice(0, k + 1);
                break;
            }
        }
    }

    #drop(which) {
        for (const [key, made] of this.#made) {
            if (!which(key)) continue;
            made.stop?.();
            this.#made.delete(key);
        }
    }

    /**
     * {values, levels, done} as shown, made in slices; drawing begins with the first level. what: a
     * "head", one of the "other" map, or the "difference" of both.
     */
    levels(head, what = 'head') {
        const s = this.state, d = what === 'other' ? this.otherData : this.data;
        const difference = what === 'difference';
        const filter = { hidden: null, topK: 0, topP: 0, threshold: 0, perRow: false, mask: s.mask,
            renormalise: s.renormalise };
        if (!difference) Object.assign(filter, { hidden: s.hide, topK: s.topK, topP: s.topP,
            threshold: s.threshold, perRow: s.scale === 'row' });
        const key = `${what} ${JSON.stringify([head, difference ? s.other : 0, filter, s.pool])}`,
            found = this.#made.get(key);
        if (found) {
            this.#made.delete(key); // the one used last is the last to go
            this.#made.set(key, found);
            return found;
        }
        const kept = d.rows * d.cols > 1 << 20 ? 1 : 5;
        for (const old of [...this.#made.keys()].slice(0, -kept)) this.#drop((k) => k === old);
        if (filter.hidden !== null) filter.hidden = hiddenKeys(s.hide, this.data);
        const made = { levels: null, values: null, data: d, done: false };
        made.stop = inSlices(this.#make(made, head, difference, filter), this.refresh, () => {
            made.done = true;
            this.refresh();
        });
        this.#made.set(key, made);
        return made;
    }

    *#make(made, head, difference, filter) {
        const d = made.data;
        let values = this.raw(head, d);
        if (difference) {
            const b = this.raw(this.state.other, this.otherData);
            values = values.map((v, k) => v - b[k]);
        }
        made.values = yield* shown(d, head, values, filter);
        for (const levels of pyramid(made.values, d.rows, d.cols, d.bq, d.bk, d.pooled ?? this.state.pool)) {
            made.levels = levels;
            yield;
        }
    }

    /** A head in numbers, for the order of the grid. */
    facts(head) { return (this.#facts[head] ??= headFacts(this.data, head)); }

    /* --- small pictures ----------------------------------------------------------------------- */

    get thumbsMade() { return this.#thumbs.filter(Boolean).length; }

    /** A head's small picture, or null until it has been made. */
    thumb(head) {
        if (typeof head === 'number') return this.#thumbs[head] ?? null;
        const picked = this.state.selection, chosen = picked.length > 1 ? picked : count(this.data.heads),
            key = head + chosen;
        if (this.#thumbs[head]?.key !== key) {
            const all = chosen.map((k) => this.#thumbs[k]);
            if (all.includes(undefined)) return null;
            const of = (k) => all.map((t) => t.values[k]);
            const values = all[0].values.map((_, k) => (head === 'max' ? Math.max(...of(k))
                : of(k).reduce((a, b) => a + b) / all.length));
            this.#thumbs[head] = { ...all[0], values, key };
        }
        return this.#thumbs[head];
    }

    #makeThumbs() {
        const d = this.data, thumbs = this.#thumbs = [], { hide, renormalise } = this.state;
        const filter = { hidden: hiddenKeys(hide, d), renormalise };
        this.#stopThumbs?.();
        function* make() {
            for (const k of count(d.heads)) {
                thumbs[k] = yield* thumbnail(d, k, filter);
                yield;
            }
        }
        this.#stopThumbs = inSlices(make(), this.refresh, this.refresh);
    }

    /* --- colours and scales ------------------------------------------------------------------- */

    /** The colours of the style sheet as canvases want them, and the font. */
    get ink() {
        const style = getComputedStyle(this.host),
            key = style.color + style.backgroundColor + style.getPropertyValue('--line');
        if (this.#ink?.key !== key) {
            const { probe } = this.ui, ink = { key, font: style.fontFamily };
            for (const name of ['text', 'ground', 'muted', 'line', 'accent', 'soft']) {
                probe.style.color = `var(--${name})`;
                ink[name] = getComputedStyle(probe).color;
            }
            this.#ink = ink;
        }
        return this.#ink;
    }

    restyle() {
        this.#ink = null;
        this.#tables.clear();
        this.refresh();
    }

    lut(kind) {
        const { ground, accent } = this.ink;
        return palette(kind || this.state.colormap, ground, accent);
    }

    table(limits, diverging) {
        const { ground } = this.ink, key = JSON.stringify([limits, diverging || this.state.colormap, ground]);
        if (!this.#tables.has(key)) {
            if (this.#tables.size > 8) this.#tables.clear();
            this.#tables.set(key, table(limits, this.lut(diverging && 'diverging'), packed(ground)));
        }
        return this.#tables.get(key);
    }

    /** The scale's own limits and those in force, for what levels() made, in a layout. */
    limits(made, lay, diverging) {
        const s = this.state, full = this.#scale(made, lay, diverging);
        if (!(full.high > full.low)) full.high = full.low + 1;
        const limits = { ...full };
        if (s.scale !== 'row' && !diverging) {
            if (s.low !== null && s.low >= full.low && s.low < full.high) limits.low = s.low;
            if (s.high !== null && s.high > limits.low && s.high <= full.high) limits.high = s.high;
        }
        return { full, limits };
    }

    #scale(made, lay, diverging) {
        const d = made.data, { scale } = this.state, { levels } = made;
        const likely = d.stage === 'probabilities' && d.low >= 0 && d.high <= 1.001;
        const whole = () => (made.extremes ??= extremes({ ...d, values: made.values }));
        if (diverging) {
            const most = made.done ? Math.max(-whole().low, whole().high) || 1 : 1;
            return { low: -most, high: most };
        }
        if (scale === 'row') return { low: 0, high: 1 };
        if (scale === 'head') {
            if (likely && levels) return { low: 0, high: extremes(levels.at(-1)).high };
            if (made.values) return { ...whole() };
        }
        if (scale === 'visible' && levels && lay) {
            const l = pickLevel(levels, lay.sx, lay.sy);
            const part = (from, seen, size, n) => [Math.floor(from / size),
                Math.min(n, Math.ceil((from + seen) / size))];
            return extremes(l, ...part(lay.y, lay.seenY, l.bh, l.rows),
                ...part(lay.x, lay.seenX, l.bw, l.cols));
        }
        if (scale === 'log') {
            const high = likely ? 1 : Math.max(d.high, 1e-30);
            return { low: high * LOG_FLOOR, high, log: true };
        }
        return likely ? { low: 0, high: 1 } : { low: d.low, high: d.high };
    }
}
