// draw.js: the views that stand on canvases, Matrix, Compare and Arcs, the words of the legend, and the same as
// pictures for files.
// Work follows the pixels that are seen, never queries x keys.

import { colourOf, css, ticks, valueAt } from './colour.js';
import { clamp, count, exactRow, headName, largest, pickLevel, shortest, visible } from './data.js';
import { h, refill } from './dom.js';
import { SCALES } from './model.js';

/* --- cells ------------------------------------------------------------------------------------ */

const scratch = { canvas: null, pixels: null };

/** A canvas of at least width x height, and as many packed pixels, used again from frame to frame. */
function pixels(width, height) {
    const s = scratch, canvas = (s.canvas ??= h('canvas'));
    if (canvas.width < width) canvas.width = width;
    if (canvas.height < height) canvas.height = height;
    if (!(s.pixels?.length >= width * height)) s.pixels = new Uint32Array(width * height);
    return s.pixels;
}

/**
 * Draws the part of the pyramid that the box shows: `v` is {x, y} the cell at the box's corner and
 * {sx, sy} the size of a cell, `dpr` the pixels of a unit of both. Returns the level that was drawn.
 */
function paintCells(ctx, levels, colours, v, box, dpr = 1) {
    const l = pickLevel(levels, v.sx * dpr, v.sy * dpr), w = l.bw * v.sx, high = l.bh * v.sy;
    // While the pyramid grows there may be no such level yet: then every few cells of the best one.
    const stepX = Math.max(1, Math.floor(1 / (w * dpr))), stepY = Math.max(1, Math.floor(1 / (high * dpr)));
    const c0 = Math.max(0, Math.floor(v.x / l.bw)), r0 = Math.max(0, Math.floor(v.y / l.bh));
    const c1 = Math.min(l.cols, Math.ceil(v.x / l.bw + box.w / w));
    const r1 = Math.min(l.rows, Math.ceil(v.y / l.bh + box.h / high));
    const nc = Math.ceil((c1 - c0) / stepX), nr = Math.ceil((r1 - r0) / stepY);
    if (nc <= 0 || nr <= 0) return l;
    const out = pixels(nc, nr), { bits } = l;
    for (let r = r0, k = 0; r < r1; r += stepY) {
        const row = r * l.cols;
        for (let c = c0; c < c1; c += stepX) out[k++] = colours[bits[row + c] >>> 15];
    }
    const image = new ImageData(new Uint8ClampedArray(out.buffer, 0, nc * nr * 4), nc, nr);
    const g = scratch.canvas.getContext('2d', { willReadFrequently: true }); // pixels stay where they are made
    g.putImageData(image, 0, 0);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(scratch.canvas, 0, 0, nc, nr, box.x + c0 * w - v.x * v.sx, box.y + r0 * high - v.y * v.sy,
        nc * stepX * w, nr * stepY * high);
    return l;
}

let hatchMade = null; // one pattern for each pair of colours

/** Diagonal lines: what stands for "masked", which is something other than zero. */
function hatch(ctx, { ground, line }, dpr) {
    const key = `${ground} ${line} ${dpr}`, n = Math.round(6 * dpr);
    if (hatchMade?.key !== key) {
        const canvas = h('canvas', { width: n, height: n }), g = canvas.getContext('2d');
        g.fillStyle = ground;
        g.fillRect(0, 0, n, n);
        g.strokeStyle = line;
        g.lineWidth = Math.max(1, dpr);
        g.beginPath();
        for (const d of [-n, 0, n]) {
            g.moveTo(d - 1, n + 1);
            g.lineTo(d + n + 1, -1);
        }
        g.stroke();
        hatchMade = { key, canvas };
    }
    const pattern = ctx.createPattern(hatchMade.canvas, 'repeat');
    pattern.setTransform({ a: 1 / dpr, d: 1 / dpr });
    return pattern;
}

/** An empty canvas whose units are CSS pixels. */
function blank(ctx, { dpr, ground }) {
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    ctx.fillStyle = ground ?? 'transparent';
    ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
}

/* --- layout and labels ------------------------------------------------------------------------ */

const FONT = 12, TEXT = 10; // the size of labels, and the least size of a cell that has one

function write(ctx, { font }, text, x, y, colour, size = 10, bold = false) {
    ctx.font = `${bold ? '600 ' : ''}${size}px ${font}`;
    ctx.fillStyle = colour;
    ctx.fillText(text, x, y);
}

/** As much of a word as fits. */
function fitted(ctx, word, width) {
    const letters = [...word];
    let text = word;
    for (let n = letters.length - 1; n > 0 && ctx.measureText(text).width > width + 1; n--) {
        text = `${letters.slice(0, n).join('')}…`;
    }
    return text;
}

/** The width that labels need: of some of them, so that it does not change while one pans. */
function labelWidth(ctx, tokens, most) {
    let width = 0;
    for (let i = 0; i < tokens?.length; i += Math.ceil(tokens.length / 300)) {
        width = Math.max(width, ctx.measureText(visible(tokens[i], 16)).width);
    }
    return Math.min(most, Math.ceil(width));
}

/**
 * Where everything stands, in CSS pixels. view {z, x, y}: how often larger than fitting, and the cell
 * in the corner. A cell is square unless that would make a long map a thread.
 */
export function layout(ctx, d, width, height, view, font) {
    ctx.font = `${FONT}px ${font}`;
    const digits = (n) => Math.ceil(ctx.measureText(Math.max(0, n - 1)).width);
    const side = labelWidth(ctx, d.queryTokens, Math.min(130, width * 0.25));
    const words = labelWidth(ctx, d.keyTokens, Math.min(110, height * 0.25));
    const left = side + digits(d.queries) + 22, box = { x: left, w: Math.max(20, width - left - 14) };
    const fit = (top) => {
        box.y = top;
        box.h = Math.max(20, height - top - 10);
        let sx = box.w / Math.max(1, d.keys), sy = box.h / Math.max(1, d.queries);
        if (sx / sy < 6 && sy / sx < 6) sx = sy = Math.min(sx, sy);
        return { sx: Math.min(sx, 56), sy: Math.min(sy, 56) };
    };
    let { sx, sy } = fit(words + digits(d.keys) + 22);
    const slanted = sx * view.z >= 17;
    if (slanted) {
        ({ sx, sy } = fit(Math.ceil(words * 0.72) + 34));
        const over = words * 0.72 + 8 - (box.w - sx * d.keys); // the last label leans out to the right
        if (over > 0 && view.z === 1) {
            box.w -= Math.min(over, 90);
            ({ sx, sy } = fit(box.y));
        }
    }
    sx *= view.z;
    sy *= view.z;
    const spare = Math.max(0, box.w - sx * d.keys) / 2; // a narrow map stands in the middle
    box.x += spare;
    box.w -= spare;
    const seenX = Math.min(d.keys, box.w / sx), seenY = Math.min(d.queries, box.h / sy);
    const x = clamp(view.x, 0, d.keys - seenX), y = clamp(view.y, 0, d.queries - seenY);
    return { width, height, box, sx, sy, slanted, side, words, seenX, seenY, x, y };
}

/** The cell under a point, or null. */
export function cellAt({ box, x, y, sx, sy }, d, px, py) {
    const key = Math.floor(x + (px - box.x) / sx), query = Math.floor(y + (py - box.y) / sy);
    const inside = px >= box.x && py >= box.y && px < box.x + box.w && py < box.y + box.h;
    return inside && query >= 0 && key >= 0 && query < d.queries && key < d.keys ? { query, key } : null;
}

/** Which rows or columns have a label, and which only a number. */
function marks(from, seen, n, size) {
    const first = Math.floor(from), last = Math.min(n - 1, Math.ceil(from + seen) - 1);
    if (size >= TEXT) return count(Math.max(0, last - first + 1)).map((k) => first + k);
    const round = ticks(first, last, Math.max(1, (seen * size) / 60));
    return round.filter((v) => Number.isInteger(v) && v >= first && v <= last);
}

/** Every label of both axes, as the canvas and the SVG draw it. */
function axisLabels(l, d) {
    const { box } = l, axis = (name, from, seen, n, size, start, room, tokens) =>
        marks(from, seen, n, size).map((index) => {
            const word = tokens && size >= TEXT ? visible(tokens[index], 16) : '';
            return { axis: name, index, word, at: start + (index + 0.5 - from) * size };
        }).filter(({ at }) => at >= start && at <= start + Math.min(room, size * n));
    const queries = axis('query', l.y, l.seenY, d.queries, l.sy, box.y, box.h, d.queryTokens);
    const keys = axis('key', l.x, l.seenX, d.keys, l.sx, box.x, box.w, d.keyTokens);
    return [...queries.map((t) => ({ ...t, x: box.x - 8, y: t.at, angle: 0 })),
        ...keys.map((t) => ({ ...t, x: t.at, y: box.y - 8, angle: l.slanted ? -45 : -90 }))];
}

function drawLabels(ctx, l, d, ink, at) {
    const labels = axisLabels(l, d), width = (t) => ctx.measureText(t.index).width;
    ctx.textBaseline = 'middle';
    ctx.font = `10px ${ink.font}`;
    const wide = Math.max(...labels.filter((t) => t.axis === 'query').map(width));
    for (const t of labels) {
        const here = at && at[t.axis] === t.index;
        const number = (y) => write(ctx, ink, t.index, 0, y, here ? ink.accent : ink.muted);
        const word = (x, room) => {
            ctx.font = `${FONT}px ${ink.font}`;
            write(ctx, ink, fitted(ctx, t.word, room * 1.12), x, 0, here ? ink.accent : ink.text, FONT, here);
        };
        ctx.save();
        ctx.translate(t.x, t.y);
        if (t.axis === 'query') {
            ctx.textAlign = 'right';
            number(0);
            word(-wide - 5, l.side);
        } else if (l.slanted || !t.word) {
            ctx.textAlign = 'center';
            number(-1);
            ctx.translate(0, -10);
            ctx.rotate(-Math.PI / 4);
            ctx.textAlign = 'left';
            word(2, l.words);
        } else {
            ctx.rotate(-Math.PI / 2);
            number(0);
            word(width(t) + 5, l.words);
        }
        ctx.restore();
    }
}

/* --- a pane ----------------------------------------------------------------------------------- */

/** The part of the box where there are cells. */
const areaOf = ({ box, x, y, sx, sy }, d) =>
    ({ ...box, w: Math.min(box.w, (d.keys - x) * sx), h: Math.min(box.h, (d.queries - y) * sy) });

function clip(ctx, { x, y, w, h: high }, more) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(x - more, y - more, w + 2 * more, high + 2 * more);
    ctx.clip();
}

/** The line between segments, drawn twice so that it is seen on any colour. */
const EDGE = ({ ground, text }) => [[ground, 4], [text, 1.5]];

/** Draws a pane as describe() has it. Returns the level that was drawn. */
function drawPane(ctx, p) {
    const { d, layout: l, ink, dpr, colours } = p, { box, sx, sy } = l, area = areaOf(l, d);
    blank(ctx, p);
    clip(ctx, area, 0);
    ctx.fillStyle = hatch(ctx, ink, dpr);
    ctx.fillRect(area.x, area.y, area.w, area.h);
    const used = paintCells(ctx, p.levels, colours, l, area, dpr);
    for (const t of p.tiles) {
        if (Math.min(sx, sy) * dpr < 0.5 || t.rows < 2) continue;
        const right = t.keys[0] - l.x, down = t.queries[0] - l.y; // of the box's corner, in cells
        const from = { x: Math.max(0, -right), y: Math.max(0, -down), sx, sy };
        const x = area.x + Math.max(0, right) * sx, y = area.y + Math.max(0, down) * sy;
        const seen = { x, y, w: area.x + area.w - x, h: area.y + area.h - y };
        paintCells(ctx, [t], colours, from, seen, dpr);
    }
    if (sx >= 14 && sy >= 14) { // thin gaps make cells countable
        ctx.strokeStyle = ink.ground;
        ctx.globalAlpha = 0.55;
        ctx.lineWidth = 1;
        ctx.beginPath();
        for (let j = Math.ceil(l.x); j < l.x + l.seenX; j++) {
            const x = box.x + (j - l.x) * sx;
            ctx.moveTo(x, box.y);
            ctx.lineTo(x, box.y + box.h);
        }
        for (let i = Math.ceil(l.y); i < l.y + l.seenY; i++) {
            const y = box.y + (i - l.y) * sy;
            ctx.moveTo(box.x, y);
            ctx.lineTo(box.x + box.w, y);
        }
        ctx.stroke();
    }
    ctx.globalAlpha = 1;
    for (const [colour, wide] of EDGE(ink)) {
        ctx.fillStyle = colour;
        for (const k of d.breaks) {
            ctx.fillRect(box.x + (k - l.x) * sx - wide / 2, box.y, wide, box.h);
            ctx.fillRect(box.x, box.y + (k - l.y) * sy - wide / 2, box.w, wide);
        }
    }
    ctx.restore();
    ctx.strokeStyle = ink.line;
    ctx.lineWidth = 1;
    ctx.strokeRect(area.x - 0.5, area.y - 0.5, area.w + 1, area.h + 1);
    drawLabels(ctx, l, d, ink, p.at);
    return used;
}

/** The cursor and the cell under the pointer, on a canvas of its own: cheap to draw again. */
function drawCursor(ctx, p) {
    const { d, layout: l, ink, drag } = p, { x: left, y: top, w, h: high } = areaOf(l, d);
    blank(ctx, { dpr: p.dpr });
    clip(ctx, { x: left, y: top, w, h: high }, 3);
    const cross = (cell, strong) => {
        const x = left + (cell.key - l.x) * l.sx, y = top + (cell.query - l.y) * l.sy;
        const cw = Math.max(3, l.sx), ch = Math.max(3, l.sy);
        ctx.globalAlpha = strong ? 0.9 : 0.55;
        ctx.strokeStyle = ink.accent;
        ctx.lineWidth = 1;
        ctx.strokeRect(x, top, cw, high);
        ctx.strokeRect(left, y, w, ch);
        ctx.globalAlpha = 1;
        for (const [colour, wide] of [[ink.ground, 2], [ink.text, 1]]) {
            ctx.strokeStyle = colour;
            ctx.lineWidth = wide * (strong ? 2.5 : 1.5);
            ctx.strokeRect(x, y, cw, ch);
        }
    };
    cross(p.cursor, true);
    if (p.hover) cross(p.hover, false);
    if (drag) {
        ctx.fillStyle = ink.accent;
        ctx.globalAlpha = 0.25;
        ctx.fillRect(drag.x0, drag.y0, drag.x1 - drag.x0, drag.y1 - drag.y0);
    }
    ctx.restore();
    if (p.mini && (l.seenX < d.keys - 1e-6 || l.seenY < d.queries - 1e-6)) drawMinimap(ctx, p);
}

/** Where the small map of all stands. */
export function minimapBox({ box }, d) {
    const side = Math.min(110, box.w / 3, box.h / 3) / Math.max(d.keys, d.queries);
    const w = Math.max(12, side * d.keys), high = Math.max(12, side * d.queries);
    return { x: box.x + box.w - w - 8, y: box.y + box.h - high - 8, w, h: high };
}

function drawMinimap(ctx, { d, layout: l, ink, dpr, mini: { level, colours } }) {
    const m = minimapBox(l, d), by = { x: m.w / d.keys, y: m.h / d.queries };
    const frame = [m.x - 3, m.y - 3, m.w + 6, m.h + 6];
    ctx.fillStyle = ink.ground;
    ctx.fillRect(...frame);
    paintCells(ctx, [level], colours, { x: 0, y: 0, sx: m.w / level.cols, sy: m.h / level.rows }, m, dpr);
    ctx.lineWidth = 1;
    ctx.strokeStyle = ink.line;
    ctx.strokeRect(...frame);
    ctx.lineWidth = 2;
    ctx.strokeStyle = ink.text;
    const [w, high] = [l.seenX * by.x, l.seenY * by.y].map((n) => Math.max(3, n));
    ctx.strokeRect(m.x + l.x * by.x, m.y + l.y * by.y, w, high);
}

/* --- Matrix and Compare ----------------------------------------------------------------------- */

function fitCanvases(pane) {
    const dpr = Math.min(2, devicePixelRatio || 1), { clientWidth: width, clientHeight: height } = pane.node;
    for (const c of [pane.map, pane.over]) {
        const w = Math.round(width * dpr), high = Math.round(height * dpr);
        if (c.width !== w || c.height !== high) Object.assign(c, { width: w, height: high });
    }
    return { dpr, width, height };
}

/** All that drawPane() wants, for the screen or a file; without `levels` while there is nothing yet. */
function describe(m, head, what, { width, height, dpr }) {
    const made = m.levels(head, what), { data: d, levels } = made, { ink } = m;
    const diverging = what === 'difference';
    const p = { made, d, diverging, ink, dpr, at: m.cell,
        layout: layout(m.ui.measure, d, width, height, m.state.zoom, ink.font) };
    if (!levels) return p;
    const limits = m.limits(made, p.layout, diverging);
    const tiles = m.state.scale !== 'row' && what === 'head' ? d.tiles.filter((t) => t.head === head) : [];
    return { ...p, ...limits, levels, tiles, colours: m.table(limits.limits, diverging) };
}

function drawMap(m, pane, head, what) {
    const p = describe(m, head, what, fitCanvases(pane));
    Object.assign(pane, { layout: p.layout, data: p.d, head, drawn: p.levels ? p : null });
    if (!p.levels) return p;
    p.used = drawPane(pane.map.getContext('2d'), p);
    drawOver(m, pane);
    return p;
}

/** What moves with the pointer, on a canvas of its own. */
export function drawOver(m, { drawn, data, head, box: drag, over }) {
    if (!drawn) return;
    const level = data === m.data && !drawn.diverging && m.thumb(head);
    const mini = level && { level, colours: drawn.colours };
    drawCursor(over.getContext('2d'), { ...drawn, cursor: m.state, hover: m.hover, drag, mini });
}

function matrix(m) {
    const [pane] = m.ui.panes;
    pane.name.textContent = '';
    return drawMap(m, pane, m.head, 'head');
}

function compare(m) {
    const s = m.state, d = m.data, o = m.otherData, { ui } = m, [a, b] = ui.panes;
    const heads = (x) => [...count(x.heads), 'mean', 'max'].map((k) => [k, headName(x, k, true)]);
    refill(ui.head, heads(d), s.head);
    refill(ui.other, heads(o), s.other);
    const nameB = `${o === d ? '' : `${visible(o.title || 'other', 40)} · `}${headName(o, s.other)}`;
    if (s.compare === 'side') {
        a.name.textContent = `A: ${headName(d, m.head)}`;
        b.name.textContent = `B: ${nameB}`;
        drawMap(m, b, s.other, o === d ? 'head' : 'other');
        return drawMap(m, a, m.head, 'head');
    }
    a.name.textContent = `A − B: ${headName(d, s.head)} − ${nameB}`;
    if (o.rows === d.rows && o.cols === d.cols) return drawMap(m, a, s.head, 'difference');
    ui.message.hidden = false;
    ui.message.textContent = `A is ${d.queries} × ${d.keys}, B is ${o.queries} × ${o.keys}: ` +
        'a difference needs equal sizes. Side by side works.';
    a.drawn = null;
    blank(a.map.getContext('2d'), { dpr: 1 });
    return null;
}

/* --- Arcs: lines from queries on the left to keys on the right, as wide as their weight --------- */

const MOST_LINES = 4000;
// Okabe and Ito's colours, in an order that stays apart for colour-blind eyes, for several heads.
const HUES = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'];

function arcs(m) {
    const s = m.state, d = m.data, { ink } = m, [pane] = m.ui.panes, { dpr, width, height } = fitCanvases(pane);
    const heads = s.selection.length > 1 && m.hoverHead === null ? s.selection : [m.head];
    const l = arcsLayout(d, width, height, m.scroll);
    m.scroll = l.scroll;
    pane.name.textContent = '';
    Object.assign(pane, { layout: null, drawn: null, arcs: l, data: d, head: m.head });
    const values = heads.map((x) => (d.pooled ? m.raw(x) : m.levels(x).values));
    const row = (n, query) => (d.pooled || values[n]) && exactRow(d, heads[n], values[n], query);
    const found = arcsLines(d, l, heads, row, s.lines === 'row' ? m.cell.query : null);
    drawArcs(pane.map.getContext('2d'), { d, layout: l, ink, dpr, cursor: m.cell, heads, ...found });
    blank(pane.over.getContext('2d'), { dpr });
    const { lines, all, strongest } = found, limits = { low: 0, high: strongest };
    const notes = [all > lines.length
        ? `${lines.length} strongest of ${all} lines (at most ${MOST_LINES} are drawn). `
        : `${lines.length} lines. `];
    if (heads.length === 1) notes.push('Wider and stronger: more weight.');
    else heads.forEach((x, k) => notes.push(hue(HUES[k % HUES.length]), headName(d, x)));
    return { full: limits, limits, kind: 'ramp', notes };
}

function hue(colour) {
    const node = h('i', { className: 'hue' });
    node.style.backgroundColor = colour;
    return node;
}

function arcsLayout(d, width, height, scroll) {
    const n = Math.max(d.queries, d.keys), side = Math.min(150, width * 0.3);
    const step = clamp((height - 24) / n, 20, 36); // pixels from one token to the next
    const y = clamp(scroll, 0, Math.max(0, n * step + 24 - height));
    return { width, height, step, side, left: side, right: width - side, scroll: y,
        first: Math.max(0, Math.floor((y - 18) / step)), last: Math.ceil((y + height) / step),
        row: (k) => 18 + k * step - y };
}

/** The lines to draw: [{head, query, key, value}], the strongest MOST_LINES, and how many there were. */
function arcsLines(d, { first, last }, heads, rows, pinned) {
    const seen = count(Math.max(0, Math.min(d.queries, last + 1) - first)).map((k) => first + k);
    const queries = pinned === null ? seen : [pinned], lines = [];
    const each = clamp(Math.ceil(MOST_LINES / (queries.length * heads.length || 1)), 1, d.keys);
    let all = 0;
    heads.forEach((_, head) => {
        for (const query of queries) {
            const row = rows(head, query) || [];
            for (const v of row) if (v > 0) all++;
            for (const key of largest(row, each)) {
                if (row[key] > 0) lines.push({ head, query, key, value: row[key] });
            }
        }
    });
    lines.sort((a, b) => a.value - b.value);
    return { lines: lines.slice(-MOST_LINES), all, strongest: lines.at(-1)?.value ?? 1 };
}

export function arcsHit(d, l, x, y) {
    const k = Math.round((y + l.scroll - 18) / l.step);
    if (k < 0) return null;
    if (x < l.width / 2) return k < d.queries ? { query: k } : null;
    return k < d.keys ? { key: k } : null;
}

function drawArcs(ctx, p) {
    const { d, layout: l, ink, cursor } = p, { left, right, step } = l, bend = (right - left) * 0.4;
    blank(ctx, p);
    for (const t of p.lines) {
        const y0 = l.row(t.query), y1 = l.row(t.key), w = Math.min(1, t.value / p.strongest);
        ctx.strokeStyle = p.heads.length > 1 ? HUES[t.head % HUES.length] : ink.accent;
        ctx.globalAlpha = 0.08 + 0.92 * w;
        ctx.lineWidth = 0.6 + 4.4 * w;
        ctx.beginPath();
        ctx.moveTo(left, y0);
        ctx.bezierCurveTo(left + bend, y0, right - bend, y1, right, y1);
        ctx.stroke();
    }
    ctx.globalAlpha = 1;
    ctx.textBaseline = 'middle';
    const column = (tokens, n, x, sign, at) => {
        ctx.textAlign = sign > 0 ? 'left' : 'right';
        for (let k = l.first; k < Math.min(n, l.last + 1); k++) {
            const y = l.row(k), here = k === at;
            ctx.fillStyle = ink.soft;
            if (here) ctx.fillRect(x + sign * 2, y - step / 2, sign * l.side, step);
            write(ctx, ink, k, x + sign * 8, y, here ? ink.text : ink.muted);
            if (tokens) write(ctx, ink, visible(tokens[k], 16), x + sign * 34, y, ink.text, 13, here);
        }
    };
    column(d.queryTokens, d.queries, left, -1, cursor.query);
    column(d.keyTokens, d.keys, right, 1, cursor.key);
}

export const CANVAS_VIEWS = { matrix, compare, arcs };

/* --- the legend's words ------------------------------------------------------------------------- */

/** What one dot of a level is. */
function poolWords(m, level) {
    const d = m.data, { bh, bw } = level ?? { bh: d.bq, bw: d.bk };
    return bh * bw === 1 ? 'every cell is one weight'
        : `each dot is the ${d.pooled ?? m.state.pool} of ${bh}×${bw} cells`;
}

export function updateLegend(m, drawn) {
    if (!drawn?.limits) return;
    const { scale, mask, view } = m.state, { diverging, full, limits, kind, notes = [] } = drawn;
    const more = { log: `, ${full.low} and less have the first colour`,
        row: ': 1 is the largest of its row' }[scale] ?? '';
    const named = view === 'arcs' ? 'scale: up to the strongest line' : `scale: ${SCALES[scale]}${more}`;
    const said = diverging ? 'A − B; the middle is no difference' : named;
    const words = [`${said}; ${poolWords(m, drawn.used)}. `];
    if (m.data.mask && mask) words.push(h('i', { className: 'swatch' }), ' masked. ');
    words.push(...notes);
    if (drawn.made && !drawn.made.done) words.push(' (drawing finer…)');
    const movable = scale !== 'row' && !diverging && view !== 'arcs';
    m.ui.legend.update(full, limits, m.lut(kind ?? (diverging && 'diverging')), words, movable);
}

/* --- pictures for files ------------------------------------------------------------------------- */

export const escape = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** An element of SVG: attributes, numbers rounded, and what stands inside. */
function svg(name, given, ...inside) {
    const text = (v) => (typeof v === 'number' ? Number(v.toFixed(2)) : v);
    const all = Object.entries(given).map(([k, v]) => ` ${k}="${text(v)}"`).join('');
    return `<${name}${all}>${inside.join('')}</${name}>`;
}

const WIDE = 220, round = (v) => shortest(Number(v.toPrecision(3))); // the colour bar of files, its numbers

/** A pane as describe() has it; cells are rectangles up to 10000 of them. */
function toSVG(p) {
    const { d, layout: l, ink, full, limits, lut } = p, { box, width, height, x, y, sx, sy } = l, cells = [];
    const rows = Math.min(d.queries - y, l.seenY), cols = Math.min(d.keys - x, l.seenX);
    const area = { x: box.x, y: box.y, width: cols * sx, height: rows * sy };
    const colour = (v) => css(colourOf(v, limits, lut));
    const [i0, j0] = [y, x].map(Math.floor), [i1, j1] = [y + rows, x + cols].map((n) => Math.ceil(n - 1e-9));
    const few = (i1 - i0) * (j1 - j0) <= 10000 && !d.pooled;
    for (let i = i0; few && i < i1; i++) {
        for (let j = j0; j < j1; j++) {
            const v = p.levels[0].values[i * d.cols + j];
            if (v - v !== 0) continue; // masked: the hatch shows; left out: the ground
            const at = { x: box.x + (j - x) * sx, y: box.y + (i - y) * sy };
            cells.push(svg('rect', { ...at, width: sx, height: sy, fill: colour(v) }));
        }
    }
    if (!few) cells.push(svg('image', { ...area, preserveAspectRatio: 'none', href: raster(p, area) }));
    const { x: left, y: top } = box, path = d.breaks.map((k) => `M${left + (k - x) * sx} ${top}v${area.height}` +
        `M${left} ${top + (k - y) * sy}h${area.width}`).join('');
    cells.push(...EDGE(ink).map(([stroke, wide]) => svg('path', { d: path, stroke, 'stroke-width': wide })));
    const labels = axisLabels(l, d).map((t) => {
        const word = t.word && svg('tspan', { fill: ink.text, 'font-size': 12 }, escape(t.word));
        const index = svg('tspan', { fill: ink.muted, 'font-size': 10 }, t.index);
        const query = { x: t.x, y: t.y + 4, 'text-anchor': 'end' };
        if (t.axis === 'query') return svg('text', query, word, ' ', index);
        const transform = `translate(${(t.x + 4).toFixed(2)} ${t.y.toFixed(2)}) rotate(${t.angle})`;
        return svg('text', { transform }, index, ' ', word);
    });
    const stops = count(17).map((k) =>
        svg('stop', { offset: `${k / 16}`, 'stop-color': colour(valueAt(k / 16, full)) }));
    const small = { 'font-size': 11, fill: ink.muted };
    const numbers = [0, 0.5, 1].map((t) => svg('text', { x: box.x + WIDE * t, y: height + 32, ...small,
        'text-anchor': 'middle' }, round(valueAt(t, full))));
    const high = height + 54, about = { xmlns: 'http://www.w3.org/2000/svg', width, height: high,
        viewBox: `0 0 ${width} ${high}`, 'font-family': 'sans-serif' };
    return svg('svg', about, ['', svg('title', {}, escape(p.name)),
        svg('rect', { width, height: high, fill: ink.ground }),
        svg('clipPath', { id: 'c' }, svg('rect', area)),
        svg('pattern', { id: 'm', width: 6, height: 6, patternUnits: 'userSpaceOnUse' },
            svg('path', { d: 'M-1 7L7 -1', stroke: ink.line })),
        svg('linearGradient', { id: 'g' }, ...stops),
        svg('rect', { ...area, fill: 'url(#m)', stroke: ink.line }),
        svg('g', { 'clip-path': 'url(#c)', 'shape-rendering': 'crispEdges' }, ...cells), ...labels,
        svg('rect', { x: box.x, y: height + 8, width: WIDE, height: 10, fill: 'url(#g)' }), ...numbers,
        svg('text', { x: box.x, y: height + 48, ...small }, escape(`${p.name} · ${p.words}`)), ''].join('\n'));
}

/** The cells as a picture in an address: for maps of too many rectangles. */
function raster({ layout: l, levels, colours }, area) {
    const [w, high] = [area.width, area.height].map((n) => Math.min(4096, Math.ceil(n)));
    const canvas = h('canvas', { width: w, height: high });
    paintCells(canvas.getContext('2d'), levels, colours, l, { x: 0, y: 0, w, h: high });
    return canvas.toDataURL();
}

/** The pane as describe() has it, with what the colour bar and the title of a file want. */
function picture(m, dpr) {
    const s = m.state, { clientWidth: width, clientHeight: height } = m.ui.panes[0].node;
    const what = s.view === 'compare' && s.compare === 'difference' ? 'difference' : 'head';
    const p = describe(m, s.head, what, { width: width || 800, height: height || 600, dpr });
    const dot = poolWords(m, pickLevel(p.levels, p.layout.sx, p.layout.sy));
    return { ...p, at: null, ground: p.ink.ground, lut: m.lut(p.diverging && 'diverging'),
        name: [m.data.title, headName(m.data, s.head)].filter(Boolean).join(' · '),
        words: p.diverging ? 'A − B' : `scale: ${SCALES[s.scale]}; ${dot}` };
}

function canvasOf(width, height, ground) {
    const canvas = h('canvas', { width: Math.round(width), height: Math.round(height) });
    const g = canvas.getContext('2d');
    g.fillStyle = ground;
    g.fillRect(0, 0, canvas.width, canvas.height);
    return g;
}

export async function pictureBlob(m, { scale = 1, exact = false, type = 'image/png' }) {
    const p = picture(m, scale), { layout: l, ground, full, ink } = p, [{ rows, cols, bw, bh }] = p.levels;
    let g = null;
    if (exact) {
        g = canvasOf(cols, rows, ink.line);
        const cells = { x: 0, y: 0, sx: 1 / bw, sy: 1 / bh };
        paintCells(g, p.levels.slice(0, 1), p.colours, cells, { x: 0, y: 0, w: cols, h: rows });
    } else if (m.state.view === 'arcs') {
        const { map, arcs } = m.ui.panes[0];
        g = canvasOf(arcs.width * scale, arcs.height * scale, ground);
        g.drawImage(map, 0, 0, g.canvas.width, g.canvas.height);
    } else {
        g = canvasOf(l.width * scale, (l.height + 44) * scale, ground);
        drawPane(g, p);
        const { x } = l.box, y = l.height + 8;
        g.drawImage(m.ui.legend.bar, x, y, WIDE, 10);
        Object.assign(g, { fillStyle: ink.muted, font: `11px ${ink.font}`, textBaseline: 'alphabetic',
            textAlign: 'left' });
        const said = `${round(full.low)} to ${round(full.high)} · ${visible(p.name, 80)} · ${p.words}`;
        g.fillText(said, x, y + 26);
    }
    return new Promise((resolve) => { g.canvas.toBlob(resolve, type); });
}

export const pictureSVG = (m) => toSVG(picture(m, 1));
