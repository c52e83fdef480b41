// data.js: what a map is: checked shapes, labels as text, masks, what can be said about a row, and
// the pyramid of pooled levels that drawing reads. No DOM in here.

export const count = (n) => Array.from({ length: n }, (_, k) => k);
export const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

/** The shortest text that reads back as the same float32, in the form of the API: 0.25, 1.5e-05. */
export function shortest(value) {
    if (!Number.isFinite(value)) return String(value);
    let near = value;
    for (let digits = 1; digits < 10; digits++) {
        near = Number(value.toPrecision(digits));
        if (Math.fround(near) === Math.fround(value)) break;
    }
    const plain = String(near), power = near.toExponential().replace(/e([+-])(\d)$/, 'e$10$2');
    return near && (Math.abs(near) < 1e-4 || power.length < plain.length) ? power : plain;
}

/** A label as it is drawn: whitespace and control characters made visible, cut to `max` characters. */
export function visible(label, max = 24) {
    let text = String(label ?? '');
    if (text === '') return '∅';
    if (text.length > 4 * max) text = text.slice(0, 4 * max);
    text = text.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^ +| +$/g, (s) => '·'.repeat(s.length))
        .replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
        .replace(/[\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/g, '\ufffd').toWellFormed();
    const characters = [...text];
    return characters.length <= max ? text : characters.slice(0, max - 1).join('') + '…';
}

/** Labels longer than this are cut where they are spoken. */
export const spoken = (label) => (label.length <= 200 ? label
    : [...label.slice(0, 200)].slice(0, 80).join('') + '…');

const sizes = (shape) => `[${shape.join(', ')}]`;

function flat(values, count) {
    if (values instanceof Float32Array) return values;
    if (ArrayBuffer.isView(values)) return Float32Array.from(values);
    if (!Array.isArray(values)) throw new TypeError('values must be a Float32Array or an array of numbers');
    return Float32Array.from(Array.isArray(values[0]) ? values.flat(count) : values, (v) =>
        (v === null ? NaN : v));
}

function labels(tokens, what, size, shape) {
    if (tokens === undefined || tokens === null) return null;
    if (tokens.length !== size) {
        throw new RangeError(`${what} has ${tokens.length} labels, but the map has ${size} ` +
            `${what === 'queryTokens' ? 'queries' : 'keys'} (shape ${sizes(shape)}): ` +
            'give one label for each, or none');
    }
    return Array.from(tokens, String);
}

/**
 * Checks what was given as `.data` and returns the form that everything here works with. A wrong
 * length is a RangeError whose text names both sizes.
 */
export function checkData(given) {
    const shape = Array.from(given.shape ?? [], Number);
    if (shape.length < 2 || shape.length > 4 || !shape.every((n) => Number.isInteger(n) && n >= 0)) {
        throw new RangeError(`shape is ${sizes(shape)}; it must be [heads, queries, keys]`);
    }
    const layers = shape.length === 4 ? shape[0] : 1;
    const [heads, queries, keys] = shape.length === 2 ? [1, ...shape]
        : [layers * shape.at(-3), shape.at(-2), shape.at(-1)];
    const [bq, bk] = given.pooled?.block ?? [1, 1];
    const rows = Math.ceil(queries / bq), cols = Math.ceil(keys / bk);
    const values = flat(given.values, 4);
    if (values.length !== heads * rows * cols) {
        throw new RangeError(`values holds ${values.length} numbers, but shape ${sizes(shape)}` +
            `${given.pooled ? ` in blocks of ${bq}×${bk}` : ''} needs ${heads * rows * cols}`);
    }
    const data = {
        heads, queries, keys, layers, rows, cols, bq, bk, values,
        pooled: given.pooled ? given.pooled.kind ?? 'max' : null,
        stage: given.stage ?? 'probabilities',
        title: given.title ?? '',
        queryTokens: labels(given.queryTokens, 'queryTokens', queries, shape),
        keyTokens: labels(given.keyTokens ?? (queries === keys ? given.queryTokens : null), 'keyTokens', keys,
            shape),
        headLabels: given.headLabels ? Array.from(given.headLabels, String) : null,
        breaks: Array.from(given.breaks ?? [], Number), mask: null, tiles: [],
    };
    if (given.mask) data.mask = checkMask(given.mask, data, shape);
    if (data.headLabels && data.headLabels.length !== heads) {
        throw new RangeError(`headLabels has ${data.headLabels.length} labels, but there are ${heads} heads`);
    }
    let low = Infinity, high = -Infinity, odd = false;
    for (let i = 0; i < values.length; i++) {
        const v = values[i];
        if (v - v !== 0) { odd = true; continue; } // NaN or infinite
        if (v < low) low = v;
        if (v > high) high = v;
    }
    Object.assign(data, { low: low > high ? 0 : low, high: low > high ? 1 : high, odd });
    return data;
}

/** The layer that one of all heads is in, and its number there. */
export const layerAndHead = (head, perLayer) => [Math.floor(head / perLayer), head % perLayer];

export function headName({ headLabels, heads, layers }, head, short = false) {
    if (typeof head === 'string') return `${head} of heads`;
    const [layer, one] = layerAndHead(head, heads / layers);
    const named = short ? `${layer}·${one}` : `layer ${layer} head ${one}`;
    return headLabels?.[head] ?? (layers > 1 ? named : `head ${head}`);
}

/* --- masks: 1 may attend, 0 may not, as in the API ------------------------------------------------ */

// Either `cells`, an array over keys, queries x keys or heads x queries x keys, or the rule
// {offset, left, right, shift, windows, keys, length, cells}: query i < length sees key j when j <= i + offset
// (null: no such limit), i + shift - left <= j <= i + shift + right (-1: no limit), and neither keys[j]
// nor its cell is 0. `windows` has a {left, right} for each layer instead.
function checkMask(mask, d, shape) {
    const rule = { offset: null, left: -1, right: -1, shift: 0, keys: null, length: d.queries, cells: null };
    const plane = d.queries * d.keys, wrong = (what, n, needs) => {
        throw new RangeError(`${what} holds ${n} cells, but shape ${sizes(shape)} needs ${needs}`);
    };
    if (!ArrayBuffer.isView(mask) && !Array.isArray(mask)) Object.assign(rule, mask);
    else if (mask.length === d.keys && !Array.isArray(mask[0])) rule.keys = mask;
    else rule.cells = Array.isArray(mask) ? Uint8Array.from(mask.flat(3), Number) : mask;
    const { keys, cells } = rule, n = cells?.length;
    if (keys && keys.length !== d.keys) wrong('mask.keys', keys.length, d.keys);
    if (cells && ![plane, d.heads / d.layers * plane, d.heads * plane].includes(n)) {
        wrong('mask', n, `${d.keys}, ${plane} or ${d.heads * plane}`);
    }
    return rule;
}

/** The keys [from, to) that the rule lets query i see, before its `keys` and `cells`. */
function range({ mask: m, keys, heads, layers }, head, i) {
    if (i >= m.length) return [0, 0];
    const { left, right } = m.windows?.[Math.floor((Number(head) || 0) * layers / heads)] ?? m;
    const to = Math.min(keys, m.offset === null ? keys : i + m.offset + 1,
        right < 0 ? keys : i + m.shift + right + 1);
    const from = left < 0 ? 0 : Math.max(0, i + m.shift - left);
    return [from, Math.max(from, to)];
}

// Cells for one head are all heads', those of one layer all layers'; sums of heads have the first one's.
const open = ({ mask, queries, keys }, head, i, j) => (!mask.keys || mask.keys[j])
    && (!mask.cells || mask.cells[(((Number(head) || 0) * queries + i) * keys + j) % mask.cells.length]);

export function isMasked(d, head, i, j) {
    if (!d.mask) return false;
    const [from, to] = range(d, head, i);
    return j < from || j >= to || !open(d, head, i, j);
}

/** Whether nobody in these rows sees anything of these keys: a pooled block with only masked cells. */
export function blockMasked(d, head, i0, i1, j0, j1) {
    for (let i = i0; i < i1; i++) {
        const [from, to] = range(d, head, i), end = Math.min(to, j1);
        for (let j = Math.max(from, j0); j < end; j++) if (open(d, head, i, j)) return false;
    }
    return true;
}

/* --- heads and rows ------------------------------------------------------------------------------- */

/** One head's values, or the mean or maximum over `which` heads. */
export function headValues(d, head, which) {
    const n = d.rows * d.cols;
    if (typeof head !== 'string') return d.values.subarray(head * n, head * n + n);
    const heads = which.length > 1 ? which : count(d.heads);
    const out = new Float32Array(n);
    if (head === 'max') out.fill(-Infinity);
    for (const h of heads) {
        const from = d.values.subarray(h * n, h * n + n);
        if (head === 'max') for (let k = 0; k < n; k++) { if (!(from[k] <= out[k])) out[k] = from[k]; }
        else for (let k = 0; k < n; k++) out[k] += from[k] / heads.length;
    }
    return out;
}

/** The exact row of query i as far as it is known: null while only pooled values are here. */
export function exactRow(d, head, values, i) {
    if (!d.pooled) return values.subarray(i * d.cols, (i + 1) * d.cols);
    const t = d.tiles.find((x) => x.head === head && i >= x.queries[0] && i < x.queries[1] &&
        x.keys[0] === 0 && x.keys[1] === d.keys);
    return t ? t.values.subarray((i - t.queries[0]) * d.keys, (i - t.queries[0] + 1) * d.keys) : null;
}

/** The value of one cell: exact where it is known, else that of its block. */
export function cellValue(d, head, values, i, j) {
    if (!d.pooled) return { value: values[i * d.cols + j], exact: true };
    const within = ([from, to], k) => k >= from && k < to;
    const t = d.tiles.find((x) => x.head === head && within(x.queries, i) && within(x.keys, j));
    if (t) {
        const at = (i - t.queries[0]) * (t.keys[1] - t.keys[0]) + j - t.keys[0];
        return { value: t.values[at], exact: true };
    }
    return { value: values[Math.floor(i / d.bq) * d.cols + Math.floor(j / d.bk)], exact: false };
}

/** Sum, entropy in bits, largest key, and the rank of key j (1 + how many are larger). */
export function rowFacts(row, j) {
    let sum = 0, entropy = 0, best = 0, rank = 1;
    for (let k = 0; k < row.length; k++) {
        const v = row[k];
        if (v - v !== 0) continue;
        sum += v;
        if (v > 0) entropy -= v * Math.log2(v);
        if (!(row[best] >= v)) best = k;
        if (v > row[j]) rank++;
    }
    return { sum, entropy, best, rank };
}

/** The indices of the k largest, largest first. */
export function largest(row, k) {
    const top = [];
    for (let j = 0; j < row.length; j++) {
        if (row[j] - row[j] !== 0 || (top.length === k && row[j] <= row[top[k - 1]])) continue;
        let at = top.length;
        while (at > 0 && row[top[at - 1]] < row[j]) at--;
        top.splice(at, 0, j);
        if (top.length > k) top.pop();
    }
    return top;
}

/** What a head looks like in one number each: for the order of the grid. */
export function headFacts(d, head) {
    const values = headValues(d, head, []), step = Math.max(1, Math.floor(d.rows / 128));
    let entropy = 0, first = 0, diagonal = 0, n = 0;
    for (let i = 0; i < d.rows; i += step, n++) {
        const row = values.subarray(i * d.cols, (i + 1) * d.cols), at = Math.round(i * d.cols / d.rows);
        entropy += rowFacts(row, 0).entropy;
        first += row[0] || 0;
        for (let j = Math.max(0, at - 1); j <= Math.min(d.cols - 1, at + 1); j++) diagonal += row[j] || 0;
    }
    return { entropy: entropy / n || 0, first: first / n || 0, diagonal: diagonal / n || 0 };
}

/** Which keys a text hides: /regular expression/, or labels between commas. */
export function hiddenKeys(text, d) {
    if (!text.trim() || !d.keyTokens) return null;
    const pattern = /^\/(.*)\/([imsu]*)$/s.exec(text.trim());
    let test;
    if (pattern) {
        let expression;
        try { expression = new RegExp(pattern[1], pattern[2]); } catch { return null; }
        test = (label) => expression.test(label);
    } else {
        const names = new Set(text.split(',').map((s) => s.trim()));
        test = (label) => names.has(label) || names.has(label.trim());
    }
    const hidden = Uint8Array.from(d.keyTokens, (label) => (test(label) ? 1 : 0));
    return hidden.includes(1) ? hidden : null;
}

function threshold(row, k) { // the k-th largest of a row
    const sorted = row.filter((v) => v - v === 0).sort();
    return k >= sorted.length ? -Infinity : sorted[sorted.length - k];
}

function cumulative(row, p) { // the smallest value among the largest ones that hold p of the sum
    const sorted = row.filter((v) => v - v === 0).sort();
    let sum = 0, need = 0;
    for (const v of sorted) need += v;
    need *= p;
    for (let k = sorted.length - 1; k >= 0; k--) {
        sum += sorted[k];
        if (sum >= need - 1e-7) return sorted[k];
    }
    return -Infinity;
}

/**
 * The values as they are shown, made row by row: NaN where the mask hides a cell, -Infinity where a
 * filter leaves it out. Without either it is the array itself and nothing is copied. A generator: the
 * caller lets it run in slices. f: {mask, hidden, renormalise, topK, topP, threshold, perRow}.
 */
export function* shown(d, head, values, f) {
    const mask = f.mask && d.mask;
    if (!mask && !d.odd && !f.hidden && !f.topK && !f.topP && !f.threshold && !f.perRow) return values;
    const out = new Float32Array(values.length), n = d.cols, whole = !d.pooled;
    for (let i = 0; i < d.rows; i++) {
        const row = out.subarray(i * n, (i + 1) * n);
        row.set(values.subarray(i * n, (i + 1) * n));
        if (d.odd) for (let j = 0; j < n; j++) if (row[j] === -Infinity) row[j] = NaN;
        if (mask) {
            const i1 = Math.min((i + 1) * d.bq, d.queries);
            for (let j = 0; j < n; j++) {
                if (whole ? isMasked(d, head, i, j)
                    : row[j] === 0 && blockMasked(d, head, i * d.bq, i1, j * d.bk,
                        Math.min((j + 1) * d.bk, d.keys))) row[j] = NaN;
            }
        }
        if (f.hidden && whole) {
            let left = 0;
            for (let j = 0; j < n; j++) {
                if (f.hidden[j]) row[j] = -Infinity;
                else if (row[j] > 0) left += row[j];
            }
            if (f.renormalise && left > 0) for (let j = 0; j < n; j++) row[j] /= left;
        }
        let floor = f.threshold || -Infinity;
        if (f.topK) floor = Math.max(floor, threshold(row, f.topK));
        if (f.topP) floor = Math.max(floor, cumulative(row, f.topP));
        if (floor !== -Infinity) for (let j = 0; j < n; j++) if (row[j] < floor) row[j] = -Infinity;
        if (f.perRow) {
            let low = 0, high = -Infinity;
            for (let j = 0; j < n; j++) {
                if (row[j] > high) high = row[j];
                if (row[j] < low && row[j] !== -Infinity) low = row[j];
            }
            if (high > low) for (let j = 0; j < n; j++) row[j] = (row[j] - low) / (high - low);
        }
        if (n > 512 || i % 64 === 63) yield;
    }
    return out;
}

/* --- the pyramid ---------------------------------------------------------------------------------- */

const ALONE = 64; // a side this short is never pooled

/** Values with the size of the blocks of cells that each stands for. */
export function level(values, rows, cols, bh = 1, bw = 1) {
    const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
    return { values, bits, rows, cols, bh, bw };
}

/** The finest level whose blocks are no smaller than a pixel, so that no block is lost. */
export function pickLevel(levels, sx, sy) {
    const fits = (l) => (l.bw * sx >= 0.99 || l.cols <= ALONE) && (l.bh * sy >= 0.99 || l.rows <= ALONE);
    return levels.find(fits) ?? levels.at(-1);
}

/** Levels of an array, each pooling 2 x 2 cells of the one before. NaN and -Infinity do not count. */
export function* pyramid(values, rows, cols, bh, bw, kind) {
    const levels = [level(values, rows, cols, bh, bw)];
    yield levels;
    while (rows > ALONE || cols > ALONE) {
        const from = levels.at(-1).values, fy = rows > ALONE ? 2 : 1, fx = cols > ALONE ? 2 : 1;
        const r = Math.ceil(rows / fy), c = Math.ceil(cols / fx), out = new Float32Array(r * c);
        for (let y = 0; y < r; y++) {
            const a = y * fy * cols, b = fy === 2 && y * 2 + 1 < rows ? a + cols : a;
            for (let x = 0; x < c; x++) {
                const p = x * fx, q = fx === 2 && p + 1 < cols ? p + 1 : p;
                const v0 = from[a + p], v1 = from[a + q], v2 = from[b + p], v3 = from[b + q];
                if (kind === 'mean') {
                    let sum = 0, n = 0, blank = false;
                    for (const v of [v0, v1, v2, v3]) {
                        if (v - v === 0) { sum += v; n++; } else if (v === -Infinity) blank = true;
                    }
                    out[y * c + x] = n ? sum / n : blank ? -Infinity : NaN;
                } else {
                    let m = v0;
                    if (v1 > m || m !== m) m = v1;
                    if (v2 > m || m !== m) m = v2;
                    if (v3 > m || m !== m) m = v3;
                    out[y * c + x] = m;
                }
            }
            if (c > 256 || y % 64 === 63) yield levels;
        }
        bh *= fy; bw *= fx; rows = r; cols = c;
        levels.push(level(out, rows, cols, bh, bw));
        yield levels;
    }
    return levels;
}

/** A small picture of a head as shown() has it: the largest value of each block, NaN where all is masked. */
export function* thumbnail(d, head, filter) {
    const all = yield* shown(d, head, headValues(d, head), filter);
    const made = pyramid(all, d.rows, d.cols, d.bq, d.bk, 'max');
    let step = made.next();
    for (; !step.done; step = made.next()) yield;
    const { rows, cols, bh, bw, values } = step.value.at(-1), out = values.slice();
    for (let k = 0; k < out.length && d.mask; k++) {
        const i = Math.floor(k / cols) * bh, j = (k % cols) * bw;
        if (out[k] === 0 && blockMasked(d, head, i, Math.min(d.queries, i + bh), j,
            Math.min(d.keys, j + bw))) out[k] = NaN;
    }
    return level(out, rows, cols);
}

/** Runs a generator in slices that leave time for frames; the first slice at once. Returns its stop. */
export function inSlices(generator, progress, done, budget = 7) {
    let stopped = false;
    const step = () => {
        if (stopped) return;
        const until = performance.now() + budget;
        for (;;) {
            const r = generator.next();
            if (r.done) { done(r.value); return; }
            if (performance.now() > until) { progress(r.value); break; }
        }
        setTimeout(step, 0);
    };
    step();
    return () => { stopped = true; };
}
