// draw.js: the views that stand on canvases, Matrix, Compare and Arcs, and the words of the legend.

import { count, exactRow, headName, largest, visible } from './data.js';
import { h, refill } from './dom.js';
import { drawCursor, drawPane, layout } from './pane.js';

export const SCALE_NAMES = {
    absolute: 'absolute 0–1', row: 'per row', head: 'per head',
    visible: 'visible range', log: 'logarithmic',
};

function fitCanvases(pane) {
    const dpr = Math.min(2, devicePixelRatio || 1), { clientWidth: width, clientHeight: height } = pane.node;
    for (const c of [pane.map, pane.over]) {
        const w = Math.round(width * dpr), high = Math.round(height * dpr);
        if (c.width !== w || c.height !== high) Object.assign(c, { width: w, height: high });
    }
    return { dpr, width, height };
}

const clear = (canvas) => canvas.getContext('2d').clearRect(0, 0, canvas.width, canvas.height);

/** All that drawPane() wants, for the screen or a file; without `levels` while there is nothing yet. */
export function describe(m, head, what, { width, height, dpr }) {
    const made = m.levels(head, what), diverging = what === 'difference', { ink } = m, d = made.data;
    const lay = layout(m.ui.measure, d, width, height, m.state.zoom, ink.font);
    const p = { made, d, layout: lay, diverging };
    if (!made.levels) return p;
    const { full, limits } = m.limits(made, lay, diverging);
    const tiles = m.state.scale !== 'row' && what === 'head' ? d.tiles.filter((t) => t.head === head) : [];
    const colours = m.table(limits, diverging);
    return { ...p, full, limits, levels: made.levels, colours, tiles, ink, font: ink.font, dpr, at: m.cell };
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
export function drawOver(m, pane) {
    const { drawn, data: d } = pane;
    if (!drawn) return;
    const { query, key } = m.state, small = d === m.data && !drawn.diverging ? m.thumb(pane.head) : null;
    const mini = small && { level: small, colours: drawn.colours };
    const over = { cursor: { query, key }, hover: m.hover, drag: pane.box, mini };
    drawCursor(pane.over.getContext('2d'), { ...drawn, ...over });
}

function matrix(m) {
    const [pane] = m.ui.panes;
    pane.name.textContent = '';
    return drawMap(m, pane, m.head, 'head');
}

function compare(m) {
    const s = m.state, d = m.data, o = m.otherData, { ui } = m, [a, b] = ui.panes;
    const sums = [['mean', 'mean of heads'], ['max', 'max of heads']];
    const heads = (x) => [...count(x.heads).map((k) => [k, headName(x, k)]), ...sums];
    refill(ui.head, heads(d), s.head);
    refill(ui.other, heads(o), s.other);
    const titleB = o === d ? '' : `${visible(o.title || 'other', 40)} · `;
    const nameB = titleB + headName(o, s.other);
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
    clear(a.map);
    return null;
}

function arcs(m) {
    const s = m.state, d = m.data, { ui } = m, [pane] = ui.panes, { dpr, width, height } = fitCanvases(pane);
    pane.name.textContent = '';
    const l = arcsLayout(d, width, height, m.scroll), heads = s.selection.length > 1 && m.hoverHead === null
        ? s.selection : [m.head];
    m.scroll = l.scroll;
    Object.assign(pane, { layout: null, drawn: null, arcs: l, data: d, head: m.head });
    const values = heads.map((x) => (d.pooled ? m.raw(x) : m.levels(x).values));
    const row = (n, query) => (d.pooled || values[n]) && exactRow(d, heads[n], values[n], query);
    const { lines, all, strongest } = arcsLines(d, l, heads, row, s.lines === 'row' ? m.cell.query : null);
    const { ink } = m;
    drawArcs(pane.map.getContext('2d'), { d, layout: l, ink, dpr, font: ink.font, cursor: m.cell, lines,
        strongest, heads });
    clear(pane.over);
    const limits = { low: 0, high: strongest };
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

export const CANVAS_VIEWS = { matrix, compare, arcs };

/** What one dot of a level is. */
export function poolWords(m, level) {
    const d = m.data, { bh, bw } = level ?? { bh: d.bq, bw: d.bk };
    return bh * bw === 1 ? 'every cell is one weight'
        : `each dot is the ${d.pooled ?? m.state.pool} of ${bh}×${bw} cells`;
}

export function updateLegend(m, drawn) {
    if (!drawn?.limits) return;
    const { scale, mask, view } = m.state, { diverging, full, limits } = drawn;
    const more = { log: `, ${full.low} and less have the first colour`,
        row: ': 1 is the largest of its row' }[scale] ?? '';
    const named = view === 'arcs' ? 'scale: up to the strongest line' : `scale: ${SCALE_NAMES[scale]}${more}`;
    const words = [diverging ? 'A − B; the middle is no difference' : named,
        `; ${poolWords(m, drawn.used)}. `];
    if (m.data.mask && mask) words.push(h('i', { className: 'swatch' }), ' masked. ');
    words.push(...(drawn.notes ?? []));
    if (drawn.made && !drawn.made.done) words.push(' (drawing finer…)');
    const lut = m.lut(drawn.kind ?? (diverging && 'diverging'));
    m.ui.legend.update(full, limits, lut, words, scale !== 'row' && !diverging && view !== 'arcs');
}

/* --- arcs: lines from queries on the left to keys on the right, as wide as their weight --------- */

const MOST_LINES = 4000;
// Okabe and Ito's colours, in an order that stays apart for colour-blind eyes, for several heads.
const HUES = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'];

function arcsLayout(d, width, height, scroll) {
    const n = Math.max(d.queries, d.keys), step = Math.max(20,
        Math.min(36, (height - 24) / n)); // pixels from one token to the next
    const side = Math.min(150, width * 0.3), most = n * step + 24;
    const y = Math.max(0, Math.min(scroll, most - height));
    return { width, height, step, side, left: side, right: width - side, scroll: y, most, row: (k) =>
        18 + k * step - y };
}

/** The lines to draw: [{head, query, key, value}], the strongest MOST_LINES, and how many there were. */
function arcsLines(d, l, heads, rows, pinned) {
    const lines = [];
    const first = Math.max(0, Math.floor((l.scroll - 18) / l.step));
    const last = Math.min(d.queries - 1, Math.ceil((l.scroll + l.height) / l.step));
    const queries = pinned === null ? Array.from({ length: Math.max(0, last - first + 1) }, (_, k) =>
        first + k) : [pinned];
    const each = Math.max(1, Math.min(d.keys, Math.ceil(MOST_LINES / Math.max(1,
        queries.length * heads.length))));
    let all = 0;
    heads.forEach((head, n) => {
        for (const query of queries) {
            const row = rows(n, query);
            if (!row) continue;
            for (const v of row) if (v > 0) all++;
            for (const key of largest(row, each)) if (row[key] > 0) lines.push({ head: n, query, key,
                value: row[key] });
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
    const { d, layout: l, ink, dpr, font, cursor } = p;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    if (p.ground) { ctx.fillStyle = p.ground; ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height); }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    for (const t of p.lines) {
        const y0 = l.row(t.query), y1 = l.row(t.key), w = Math.min(1, t.value / p.strongest),
            bend = (l.right - l.left) * 0.4;
        ctx.strokeStyle = p.heads.length > 1 ? HUES[t.head % HUES.length] : ink.accent;
        ctx.globalAlpha = 0.08 + 0.92 * w;
        ctx.lineWidth = 0.6 + 4.4 * w;
        ctx.beginPath();
        ctx.moveTo(l.left, y0);
        ctx.bezierCurveTo(l.left + bend, y0, l.right - bend, y1, l.right, y1);
        ctx.stroke();
    }
    ctx.globalAlpha = 1;
    ctx.textBaseline = 'middle';
    const column = (tokens, n, right, at) => {
        for (let k = Math.max(0, Math.floor((l.scroll - 18) / l.step)); k < n
            && l.row(k) < l.height + l.step; k++) {
            const x = right ? l.right + 8 : l.left - 8, y = l.row(k), sign = right ? 1 : -1;
            ctx.textAlign = right ? 'left' : 'right';
            if (k === at) {
                ctx.fillStyle = ink.soft;
                ctx.fillRect(right ? l.right + 2 : 0, y - l.step / 2, l.side - 2, l.step);
            }
            ctx.font = `10px ${font}`;
            ctx.fillStyle = k === at ? ink.text : ink.muted;
            ctx.fillText(k, x, y);
            ctx.font = `${k === at ? '600 ' : ''}13px ${font}`;
            ctx.fillStyle = ink.text;
            if (tokens) ctx.fillText(visible(tokens[k], 16), x + sign * 26, y);
        }
    };
    column(d.queryTokens, d.queries, false, cursor.query);
    column(d.keyTokens, d.keys, true, cursor.key);
}
