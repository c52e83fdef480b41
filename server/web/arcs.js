// arcs.js: lines from queries on the left to keys on the right, as wide as their weight.

import { largest, visible } from './data.js';

export const MOST_LINES = 4000;
// Okabe and Ito's colours, in an order that stays apart for colour-blind eyes, for several heads.
export const HUES = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9'];

export function arcsLayout(d, width, height, scroll) {
    const n = Math.max(d.queries, d.keys), step = Math.max(20, Math.min(36, (height - 24) / n)); // pixels from one token to the next
    const side = Math.min(150, width * 0.3), most = n * step + 24;
    const y = Math.max(0, Math.min(scroll, most - height));
    return { width, height, step, side, left: side, right: width - side, scroll: y, most, row: (k) => 18 + k * step - y };
}

/** The lines to draw: [{head, query, key, value}], the strongest MOST_LINES, and how many there were. */
export function arcsLines(d, l, heads, rows, pinned) {
    const lines = [];
    const first = Math.max(0, Math.floor((l.scroll - 18) / l.step)), last = Math.min(d.queries - 1, Math.ceil((l.scroll + l.height) / l.step));
    const queries = pinned === null ? Array.from({ length: Math.max(0, last - first + 1) }, (_, k) => first + k) : [pinned];
    const each = Math.max(1, Math.min(d.keys, Math.ceil(MOST_LINES / Math.max(1, queries.length * heads.length))));
    let all = 0;
    heads.forEach((head, n) => {
        for (const query of queries) {
            const row = rows(n, query);
            if (!row) continue;
            for (const v of row) if (v > 0) all++;
            for (const key of largest(row, each)) if (row[key] > 0) lines.push({ head: n, query, key, value: row[key] });
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

export function drawArcs(ctx, p) {
    const { d, layout: l, ink, dpr, font, cursor } = p;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, ctx.canvas.width, ctx.canvas.height);
    if (p.ground) { ctx.fillStyle = p.ground; ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height); }
    ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
    for (const t of p.lines) {
        const y0 = l.row(t.query), y1 = l.row(t.key), w = Math.min(1, t.value / p.strongest), bend = (l.right - l.left) * 0.4;
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
        for (let k = Math.max(0, Math.floor((l.scroll - 18) / l.step)); k < n && l.row(k) < l.height + l.step; k++) {
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
