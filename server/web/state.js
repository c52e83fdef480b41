// state.js: what a view of a map is made of, and its text for links.

import { COLOUR_MAPS } from './colour.js';

export const VIEWS = ['grid', 'matrix', 'tokens', 'arcs', 'compare'];
export const SCALES = ['absolute', 'row', 'head', 'visible', 'log'];

const one = (...values) => ({ read: (t) => (values.includes(t) ? t : undefined), write: String });
const number = (low, high) => ({
    read: (t) => (t !== '' && Number(t) >= low && Number(t) <= high ? Number(t) : undefined), write: String,
});
const whole = (low = 0) => ({ read: (t) => (/^\d{1,9}$/.test(t) && Number(t) >= low ? Number(t) : undefined),
    write: String });
const flag = { read: (t) => (t === '1' ? true : t === '0' ? false : undefined), write: (v) =>
    (v ? '1' : '0') };
const text = { read: (t) => t.slice(0, 500), write: String };
const head = { read: (t) => (t === 'mean' || t === 'max' ? t : whole().read(t)), write: String };
const heads = {
    read: (t) => {
        const h = t.split('.').map((s) => whole().read(s));
        return h.includes(undefined) ? undefined : h;
    },
    write: (v) => v.join('.'),
};
const zoom = {
    read: (t) => {
        const [z, x, y] = t.split(',').map(Number);
        return z >= 1 && z <= 1e6 && x >= 0 && y >= 0 ? { z, x, y } : undefined;
    },
    write: (v) => [v.z, v.x, v.y].map((n) => Number(n.toPrecision(8))).join(','),
};

// name: [key in a link, how it is read and written, default]
const FIELDS = {
    view: ['view', one(...VIEWS), 'matrix'],
    head: ['h', head, 0],
    selection: ['sel', heads, []],
    query: ['q', whole(), 0],
    key: ['k', whole(), 0],
    locked: ['lock', flag, false],
    scale: ['scale', one(...SCALES), 'absolute'],
    low: ['lo', number(-1e38, 1e38), null],
    high: ['hi', number(-1e38, 1e38), null],
    threshold: ['thr', number(0, 1e38), 0],
    topK: ['topk', whole(), 0],
    topP: ['topp', number(0, 1), 0],
    hide: ['hide', text, ''],
    renormalise: ['renorm', flag, false],
    mask: ['mask', flag, true],
    colormap: ['cm', one(...COLOUR_MAPS), 'cividis'],
    pool: ['pool', one('max', 'mean'), 'max'],
    direction: ['dir', one('from', 'to'), 'from'],
    lines: ['lines', one('row', 'all'), 'row'],
    sort: ['sort', one('index', 'entropy', 'first', 'diagonal'), 'index'],
    other: ['b', head, 1],
    compare: ['cmp', one('side', 'difference'), 'side'],
    zoom: ['zoom', zoom, { z: 1, x: 0, y: 0 }],
};

export const initial = () => Object.fromEntries(Object.entries(FIELDS).map(([name, f]) =>
    [name, structuredClone(f[2])]));

/** Only what is a field and has a possible value. */
export function sane(given) {
    const out = {};
    for (const [name, [, kind, fallback]] of Object.entries(FIELDS)) {
        if (!(name in given)) continue;
        const value = given[name] === null ? (fallback === null ? null : undefined)
            : kind.read(kind.write(given[name]));
        if (value !== undefined) out[name] = value;
    }
    return out;
}

/** "v=1&view=grid&h=3": what differs from the defaults, then `others`, pairs that are not ours. */
export function toLink(state, others = []) {
    const out = new URLSearchParams([['v', '1']]);
    for (const [name, [key, kind, fallback]] of Object.entries(FIELDS)) {
        const value = state[name];
        if (value === null || JSON.stringify(value) === JSON.stringify(fallback)) continue;
        if (Array.isArray(value) && value.length === 0) continue;
        out.set(key, kind.write(value));
    }
    for (const [key, value] of others) out.set(key, value);
    return out.toString();
}

/** {state, others}: whatever a link holds, nothing in it is an error. */
export function fromLink(link) {
    const state = {}, others = [];
    const keys = new Map(Object.entries(FIELDS).map(([name, f]) => [f[0], [name, f[1]]]));
    for (const [key, value] of new URLSearchParams(link)) {
        if (key === 'v') continue;
        const field = keys.get(key);
        if (!field) { others.push([key, value]); continue; }
        const read = field[1].read(value);
        if (read !== undefined) state[field[0]] = read;
    }
    return { state, others };
}
