// state.js: what a view of a map is made of, and its text for links.

import { COLOUR_MAPS } from './colour.js';

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
